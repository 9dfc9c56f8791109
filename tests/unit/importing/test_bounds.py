"""An untrusted directory: an import reads only inside it, with bounded memory and time."""

import os
import sys
import tracemalloc
from struct import pack
from typing import Any

import pytest

from penstock.importing.lavinmq import LavinDirectory
from penstock.importing.writing import import_lavinmq
from penstock.model.errors import PreconditionFailedError, StorageError
from support.lavinmq import LavinVhost, bound, exchange, exchange_deleted, message, queue, sha1, write_directory

MIB = 1024 * 1024
USER: dict[str, Any] = {"name": "anna", "password_hash": "", "hashing_algorithm": None, "tags": "", "permissions": {}}
VHOST, QUEUE = sha1("/"), sha1("q")


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lavinmq").mkdir()
    write_directory(tmp_path / "lavinmq", [USER], ["/"])
    vhost = LavinVhost(tmp_path / "lavinmq", "/")
    vhost.write_definitions(queue("q"))
    folder = vhost.write_queue("q", [message(n + 1, "", "q", b"here") for n in range(9)], frozenset({0}))
    (folder / "meta.0000000001").write_bytes(pack("<I", 9))
    (folder / "prio.005").mkdir()
    (folder / "prio.005" / "msgs.0000000001").write_bytes(pack("<i", 4))
    vhost.write_json("policies", [])
    (vhost.path / "mqtt_retained_store").mkdir()
    return tmp_path / "lavinmq"


def take(source, target=None, is_partial=True):
    return import_lavinmq(source, target, is_partial=is_partial, on_progress=lambda _done, _total: None)


def test_the_directory_itself_may_be_a_link(source, tmp_path):
    (tmp_path / "link").symlink_to(source)

    assert take(tmp_path / "link", is_partial=False).message_count == 8


@pytest.mark.parametrize(
    "place",
    [
        ".lock",
        "schema_version",
        "users.json",
        "vhosts.json",
        VHOST,
        f"{VHOST}/definitions.amqp",
        f"{VHOST}/policies.json",
        f"{VHOST}/mqtt_retained_store",
        f"{VHOST}/{QUEUE}",
        f"{VHOST}/{QUEUE}/.queue",
        f"{VHOST}/{QUEUE}/msgs.0000000001",
        f"{VHOST}/{QUEUE}/acks.0000000001",
        f"{VHOST}/{QUEUE}/meta.0000000001",
        f"{VHOST}/{QUEUE}/prio.005",
        f"{VHOST}/{QUEUE}/prio.005/msgs.0000000001",
    ],
)
def test_a_symbolic_link_is_not_followed(source, tmp_path, place):
    (source / place).rename(tmp_path / "elsewhere")
    (source / place).symlink_to(tmp_path / "elsewhere")

    with pytest.raises(PreconditionFailedError, match="is a symbolic link") as refused:
        take(source, tmp_path / "data")

    assert str(source / place) in str(refused.value)
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("place", ["users.json", f"{VHOST}/definitions.amqp", f"{VHOST}/{QUEUE}/msgs.0000000001"])
def test_a_named_pipe_is_not_waited_for(source, place):
    (source / place).unlink()
    os.mkfifo(source / place)

    with pytest.raises(PreconditionFailedError, match="is not a regular file or directory"):
        take(source)


@pytest.mark.parametrize(
    ("place", "size"),
    [
        ("users.json", 64 * MIB),
        ("schema_version", 4_096),
        (f"{VHOST}/definitions.amqp", 256 * MIB),
        (f"{VHOST}/{QUEUE}/.queue", 255),
        (f"{VHOST}/{QUEUE}/meta.0000000001", 4_096),
    ],
)
def test_a_file_longer_than_its_kind_can_be_is_refused_before_it_is_read(source, place, size):
    os.truncate(source / place, size + 1)

    with pytest.raises(StorageError, match=rf"holds {size + 1:,} bytes, and at most {size:,} are read"):
        take(source, source.parent / "data", is_partial=False)


def test_a_segment_longer_than_positions_reach_is_listed(source):
    os.truncate(source / VHOST / QUEUE / "msgs.0000000001", 2**32 + 1)

    (line,) = take(source).left_out
    assert "holds 4,294,967,297 bytes" in line


def test_a_name_that_is_not_utf_8_is_corruption(source):
    (source / VHOST / QUEUE / ".queue").write_bytes(b"q\xff")

    with pytest.raises(StorageError, match=r"\.queue' is corrupt at byte 1: the queue's name is not UTF-8"):
        take(source)


def test_two_folders_of_one_queue_are_corruption(source):
    (source / VHOST / sha1("other")).mkdir()
    (source / VHOST / sha1("other") / ".queue").write_text("q")

    with pytest.raises(StorageError, match="another folder is of queue 'q', too"):
        take(source)


@pytest.mark.parametrize("at", [2**32 - 1, 5_000_000])
def test_an_acknowledgement_beyond_the_segment_is_corruption(source, at):
    (source / VHOST / QUEUE / "acks.0000000001").write_bytes(pack("<II", 4, at))

    with pytest.raises(StorageError, match=rf"acks.0000000001' is corrupt at byte 4: it acknowledges {at}"):
        take(source, source.parent / "data", is_partial=False)


def test_more_acknowledgements_than_the_segment_has_room_for_messages_are_corruption(source):
    segment = source / VHOST / QUEUE / "msgs.0000000001"
    (source / VHOST / QUEUE / "acks.0000000001").write_bytes(pack("<I", 4) * (segment.stat().st_size // 21 + 1))

    with pytest.raises(StorageError, match=r"acks.0000000001' is corrupt at byte \d+: it acknowledges 4"):
        take(source, source.parent / "data", is_partial=False)


def test_long_files_take_no_more_memory_than_short_ones(source):
    folder = source / VHOST / QUEUE
    body = bytes(100_000)
    with (folder / "msgs.0000000001").open("wb") as file:
        file.write(pack("<i", 4))
        for number in range(400):
            file.write(message(number + 1, "", "q", body))
        file.truncate(1024 * MIB)
    (folder / "meta.0000000001").unlink()
    (folder / "acks.0000000001").unlink()
    os.truncate(source / VHOST / "definitions.amqp", 200 * MIB)

    tracemalloc.start()
    try:
        report = take(source)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert (report.message_count, report.left_out) == (400, [])
    assert peak < 8 * MIB


def lines_of_reading(tmp_path, count):
    """Return how many lines of Python run for definitions with many exchanges that are all bound and deleted again."""
    vhost = LavinVhost(tmp_path / str(count), "/")
    names = [f"e{number}" for number in range(count)]
    write_directory(tmp_path / str(count), [], ["/"])
    vhost.write_definitions(
        queue("q"),
        *(exchange(name, "direct") + bound("q", name, "k") for name in names),
        *map(exchange_deleted, names),
    )
    lines = 0

    def trace(_frame, event, _argument):
        nonlocal lines
        lines += event == "line"
        return trace

    with LavinDirectory.opened(tmp_path / str(count)) as directory:
        (found,) = directory.vhosts()
        before = sys.gettrace()
        sys.settrace(trace)
        try:
            topology = found.topology()
        finally:
            sys.settrace(before)
    assert (topology.exchanges, topology.bindings, list(topology.queues)) == ({}, {}, ["q"])
    return lines


def test_definitions_are_read_in_time_that_grows_as_they_do(tmp_path):
    few, many = (lines_of_reading(tmp_path, count) for count in (100, 800))

    assert many < 9 * few


def test_definitions_are_read_from_the_disk_once(source, monkeypatch):
    path = source / VHOST / "definitions.amqp"
    path.write_bytes(pack("<i", 1) + b"".join(queue(f"q{number}") for number in range(50_000)) + bytes(100))
    read = 0
    pread = os.pread

    def counted(descriptor, count, position):
        nonlocal read
        content = pread(descriptor, count, position)
        read += len(content)
        return content

    monkeypatch.setattr(os, "pread", counted)
    with LavinDirectory.opened(source) as directory:
        (vhost,) = directory.vhosts()
        read = 0
        assert len(vhost.topology().queues) == 50_000

    assert path.stat().st_size <= read < path.stat().st_size * 1.1
