"""LavinMQ's files are read back; any other bytes are a fault with a place and nothing worse."""

import tempfile
from contextlib import contextmanager
from pathlib import Path
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.importing.lavinmq import Folder, QueueFolder
from penstock.importing.lavinmq.definitions import read_topology
from penstock.model.errors import StorageError
from support.lavinmq import LavinVhost, all_properties, exchange, message, queue

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@contextmanager
def suppress_corruption():
    """Ignore faults that name a place; one without is an error."""
    try:
        yield
    except StorageError as fault:
        if "is corrupt at byte" not in str(fault):
            raise


@given(st.lists(st.tuples(st.binary(max_size=100), st.booleans()), max_size=30), st.dictionaries(TEXTS, VALUES))
def test_what_was_written_and_not_acknowledged_is_read(messages, headers):
    with tempfile.TemporaryDirectory() as folder:
        vhost = LavinVhost(Path(folder), "/", segment_bytes=500)
        stored = [message(n + 1, "e", "k", body, all_properties(headers, n)) for n, (body, _) in enumerate(messages)]
        acked = frozenset(n for n, (_, is_acked) in enumerate(messages) if is_acked)
        found = QueueFolder(Folder(vhost.write_queue("q", stored, acked)))

        assert [each.body for each in found.messages()] == [body for body, is_acked in messages if not is_acked]
        assert found.acked_count == len(acked)


@given(st.data())
def test_changed_bytes_are_read_or_refused_and_nothing_else(data):
    with tempfile.TemporaryDirectory() as folder:
        vhost = LavinVhost(Path(folder), "/")
        stored = [message(n + 1, "e", "k", b"body", all_properties({"a": [1, {"b": None}]}, n)) for n in range(3)]
        path = vhost.write_queue("q", stored) / "msgs.0000000001"
        vhost.write_definitions(exchange("e", "topic", {"a": [1]}), queue("q", {"x": {"y": 1}}))
        for file, read in (
            (path, lambda: list(QueueFolder(Folder(path.parent)).messages())),
            (vhost.path / "definitions.amqp", lambda: read_topology(Folder(vhost.path))),
        ):
            content = bytearray(file.read_bytes())
            for _ in range(data.draw(st.integers(1, 4))):
                content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
            file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
            with suppress_corruption():
                read()


def test_a_header_table_nested_a_thousand_deep_is_refused(tmp_path):
    content = b""
    for _ in range(1_000):
        content = b"\x01aF" + pack(">I", len(content)) + content
    properties = pack("<HI", 0x2000, len(content)) + content
    folder = LavinVhost(tmp_path, "/").write_queue("q", [message(1, "", "q", b"", properties)])

    with pytest.raises(StorageError, match="nesting deeper"):
        list(QueueFolder(Folder(folder)).messages())
