"""Reading LavinMQ's files: valid ones are read, others are refused by file and byte."""

import fcntl
from struct import pack

import pytest

from penstock.importing.lavinmq import Folder, LavinDirectory, QueueFolder
from penstock.importing.lavinmq.definitions import read_topology
from penstock.model.errors import PreconditionFailedError, StorageError
from support.lavinmq import LavinVhost, bound, exchange, frame, message, queue, queue_deleted, write_directory

BODIES = [f"body {number}".encode() for number in range(20)]


@pytest.fixture
def vhost(tmp_path):
    return LavinVhost(tmp_path, "/", segment_bytes=300)


def stored(count=20):
    return [message(1_000 + number, "e", "k", BODIES[number]) for number in range(count)]


def bodies(folder):
    return [found.body for found in QueueFolder(Folder(folder)).messages()]


def test_messages_come_over_all_segments_without_the_acknowledged(vhost):
    folder = vhost.write_queue("q", stored(), frozenset({0, 7, 19}))

    assert len(list(folder.glob("msgs.*"))) > 2
    assert bodies(folder) == [body for number, body in enumerate(BODIES) if number not in (0, 7, 19)]


def test_priorities_come_from_the_highest_down(vhost):
    folder = vhost.write_queue("q", [])
    for level, body in ((0, b"low"), (9, b"high")):
        (folder / f"prio.{level:03}").mkdir()
        (folder / f"prio.{level:03}" / "msgs.0000000001").write_bytes(pack("<i", 4) + message(1, "", "q", body))

    found = list(QueueFolder(Folder(folder)).messages())
    assert [(each.priority, each.body) for each in found] == [(9, b"high"), (0, b"low")]


def edited(at, content):
    def edit(data):
        data[at : at + len(content)] = content

    return edit


def cut(at, content):
    def edit(data):
        data[at:] = content + b"xyz"

    return edit


@pytest.mark.parametrize(
    ("edit", "rule"),
    [
        (edited(0, b"\x03"), r"byte 0: the schema is 3, not 4"),
        (edited(4, b"\xff" * 8), r"byte 4: a message cannot have been stored at -1 ms"),
        (edited(4, bytes(8)), r"byte 4: there are zeros, followed by \d+ bytes of other data"),
        (cut(12, b"\xff"), r"byte 13: an exchange's name needs 255 bytes, and \d+ are left"),
        (edited(16, b"\x03"), r"byte 16: property flags 0x1003 are invalid"),
        (edited(19, b"\xff" * 8), r"byte 19: a body of 18446744073709551615 bytes is announced"),
        (lambda data: data.__delitem__(slice(-3, None)), r"byte \d+: a body of \d bytes is announced"),
    ],
)
def test_a_corrupt_segment_is_named_with_its_byte(vhost, edit, rule):
    folder = vhost.write_queue("q", stored())
    segment = folder / "msgs.0000000001"
    content = bytearray(segment.read_bytes())
    edit(content)
    segment.write_bytes(content)

    with pytest.raises(StorageError, match=rf"msgs.0000000001' is corrupt at {rule}"):
        bodies(folder)


def test_an_acknowledgement_of_nothing_is_corruption(vhost):
    folder = vhost.write_queue("q", stored())
    (folder / "acks.0000000001").write_bytes(pack("<III", 4, 5, 0))

    with pytest.raises(StorageError, match=r"acks.0000000001' is corrupt at byte 4: it acknowledges 5"):
        bodies(folder)


def test_a_closed_segment_that_ends_too_early_is_corruption(vhost):
    folder = vhost.write_queue("q", stored())
    segment = folder / "msgs.0000000001"
    size = len(message(1_000, "e", "k", BODIES[0]))
    segment.write_bytes(segment.read_bytes()[: 4 + 2 * size])

    with pytest.raises(StorageError, match=r"it has 2 messages, and meta.0000000001 says \d+"):
        bodies(folder)


def test_corruption_can_be_passed_over_a_file_at_a_time(vhost):
    folder = vhost.write_queue("q", stored())
    segment = folder / "msgs.0000000002"
    segment.write_bytes(segment.read_bytes()[:-1])
    faults: list[Exception] = []

    found = [message.body for message in QueueFolder(Folder(folder)).messages(faults.append)]

    assert len(faults) == 1
    assert found[0] == BODIES[0]
    assert found[-1] == BODIES[-1]
    assert len(found) == len(BODIES) - 1


def test_definitions_are_what_is_left_of_all_frames(vhost):
    vhost.write_definitions(
        exchange("e", "topic", {"alternate-exchange": "a"}),
        queue("gone"),
        queue("q", {"x-max-length": 5}),
        bound("gone", "e", "k"),
        bound("q", "e", "k"),
        bound("q", "e", "k"),
        queue_deleted("gone"),
    )

    found = read_topology(Folder(vhost.path))

    assert list(found.exchanges) == ["e"]
    assert found.exchanges["e"].arguments == {"alternate-exchange": "a"}
    assert found.queues["q"].arguments == {"x-max-length": 5}
    assert [binding.destination for binding in found.bindings.values()] == ["q"]
    assert list(found.queues) == ["q"]


@pytest.mark.parametrize(
    ("frames", "at"),
    [
        (queue("q")[:-1] + b"\xcd", 4),
        (queue("q")[:-4], 4),
        (b"\x02" + queue("q")[1:], 4),
        (queue("q") + frame(60, 40, b""), 4 + len(queue("q"))),
    ],
)
def test_a_corrupt_frame_is_named_with_its_byte(vhost, frames, at):
    vhost.write_definitions(frames)

    with pytest.raises(StorageError, match=f"definitions.amqp' is corrupt at byte {at}"):
        read_topology(Folder(vhost.path))


def test_a_directory_in_use_is_refused(tmp_path):
    write_directory(tmp_path, [], [])
    with (tmp_path / ".lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            pytest.raises(PreconditionFailedError, match=r"LavinMQ holds its \.lock"),
            LavinDirectory.opened(tmp_path),
        ):
            pass


def test_an_older_schema_and_a_directory_of_something_else_are_refused(tmp_path):
    with pytest.raises(PreconditionFailedError, match="not a LavinMQ data directory"), LavinDirectory.opened(tmp_path):
        pass
    write_directory(tmp_path, [], [])
    (tmp_path / "schema_version").write_text("3")
    with pytest.raises(PreconditionFailedError, match="has schema 3"), LavinDirectory.opened(tmp_path):
        pass
