"""The definitions file: appended changes are read back, a torn end is truncated, corruption stops the start."""

import asyncio
import contextlib
import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.model.errors import DiskFullError, FileClosedError, NotWrittenError, StorageError, Thing
from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue
from penstock.storage import Bound, Declared, DefinitionsFile, Fold, QueueDeleted, definitions_amqp
from penstock.storage.amqp_frames import Change, encode
from penstock.storage.definitions_amqp import create_definitions

HEAD = b"\x01\0\0\0"
EXCHANGE = Declared(Exchange(ExchangeName("logs"), ExchangeKind.TOPIC))
QUEUE = Declared(Queue(QueueId(1), QueueName("errors"), arguments={"x-durability": "os"}))
BOUND = Bound(Binding(ExchangeName("logs"), DestinationKind.QUEUE, QueueName("errors"), RoutingKey("#.error")))
ALL: list[Change] = [EXCHANGE, QUEUE, BOUND]


def written(path, *changes):
    path.write_bytes(HEAD + b"".join(map(encode, changes)))
    return path


def append(path, *rounds, dead_frames_max=8192):
    if not path.exists():
        create_definitions(path)

    async def run():
        file, _ = DefinitionsFile.open(path, dead_frames_max)
        await asyncio.gather(*(file.append(changes) for changes in rounds))
        await file.close()
        return file

    return asyncio.run(run())


def read(path):
    file, changes = DefinitionsFile.open(path)
    asyncio.run(file.close())
    return changes


def test_a_new_file_holds_its_version_and_nothing_else(tmp_path):
    path = tmp_path / "definitions.amqp"
    create_definitions(path)

    assert read(path) == []
    assert path.read_bytes() == HEAD


def test_what_was_appended_is_there_after_a_start(tmp_path):
    path = tmp_path / "definitions.amqp"

    append(path, [EXCHANGE], [QUEUE, BOUND], [])

    assert read(path) == ALL


def test_appends_that_wait_together_keep_their_order(tmp_path):
    path = tmp_path / "definitions.amqp"
    rounds = [[Declared(Queue(QueueId(number), QueueName(f"q{number}")))] for number in range(1, 50)]

    append(path, *rounds)

    assert read(path) == [change for changes in rounds for change in changes]


def test_a_frame_torn_at_any_byte_is_cut_and_the_others_stay(tmp_path):
    path = written(tmp_path / "definitions.amqp", *ALL)
    whole = path.read_bytes()
    last = len(encode(BOUND))

    for left in range(last):
        path.write_bytes(whole[: len(whole) - last + left])
        assert read(path) == ALL[:2], f"torn after {left} bytes"
        assert path.read_bytes() == whole[: len(whole) - last], f"torn after {left} bytes"


def test_an_end_of_zeros_is_torn(tmp_path):
    path = written(tmp_path / "definitions.amqp", *ALL)
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(4096))

    assert read(path) == ALL
    assert path.read_bytes() == whole


def test_a_file_can_be_appended_to_after_its_torn_end_was_cut(tmp_path):
    path = written(tmp_path / "definitions.amqp", EXCHANGE)
    path.write_bytes(path.read_bytes() + encode(QUEUE)[:-3])

    append(path, [QUEUE], [BOUND])

    assert read(path) == ALL


@pytest.mark.parametrize("place", range(len(encode(EXCHANGE))))
def test_a_changed_byte_never_drops_the_frames_after_it(tmp_path, place):
    path = written(tmp_path / "definitions.amqp", *ALL)
    content = bytearray(path.read_bytes())
    content[len(HEAD) + place] ^= 0xFF
    path.write_bytes(content)

    with suppress(StorageError):
        assert read(path)[1:] == ALL[1:]
    assert path.read_bytes() == bytes(content)


def test_a_size_that_reaches_past_the_end_is_corruption_when_frames_follow(tmp_path):
    path = written(tmp_path / "definitions.amqp", *ALL)
    content = bytearray(path.read_bytes())
    content[len(HEAD) + 5] = 0x7F  # the second lowest byte of the first frame's size
    path.write_bytes(content)

    with pytest.raises(StorageError, match=f"at byte {len(HEAD) + 3}"):
        read(path)


def test_bad_bytes_name_their_place_and_stay(tmp_path):
    path = written(tmp_path / "definitions.amqp", EXCHANGE)
    end = path.stat().st_size
    path.write_bytes(path.read_bytes() + b"garbage that is no frame")

    with pytest.raises(StorageError, match=f"corrupt at byte {end}"):
        read(path)

    assert path.read_bytes().endswith(b"no frame")


@pytest.mark.parametrize("head", [b"", b"\x01\0", b"\x02\0\0\0", b"\0\0\0\x01"])
def test_another_version_is_refused(tmp_path, head):
    path = tmp_path / "definitions.amqp"
    path.write_bytes(head)

    with pytest.raises(StorageError, match="version"):
        read(path)


def test_a_file_of_deletions_is_rewritten_and_means_the_same(tmp_path):
    path = tmp_path / "definitions.amqp"
    deleted = []
    for number in range(2, 40):
        deleted += [Declared(Queue(QueueId(number), QueueName("gone"))), QueueDeleted(QueueName("gone"))]

    file = append(path, [*ALL, *deleted], dead_frames_max=20)

    fold = Fold()
    fold.apply_all(read(path))
    assert file.frame_count == 5
    assert list(fold.exchanges) == ["logs"]
    assert list(fold.queues) == ["errors"]
    assert list(fold.bindings.values()) == [BOUND.binding]
    assert fold.highest_queue_id == 39
    assert path.stat().st_size < 300


def test_a_rewritten_file_takes_more(tmp_path):
    path = tmp_path / "definitions.amqp"
    create_definitions(path)

    async def run():
        file, _ = DefinitionsFile.open(path, dead_frames_max=2)
        for _ in range(5):
            await file.append([QUEUE])
            await file.append([QueueDeleted(QueueName("errors"))])
        await file.append(ALL)
        await file.close()

    asyncio.run(run())
    fold = Fold()
    fold.apply_all(read(path))

    assert fold.changes() == ALL


def test_nothing_is_taken_after_a_failed_write(tmp_path):
    path = tmp_path / "definitions.amqp"
    create_definitions(path)

    async def run():
        file, _ = DefinitionsFile.open(path)
        reading = os.open(path, os.O_RDONLY)
        assert file._descriptor is not None
        os.dup2(reading, file._descriptor)  # writing to it fails from here on
        os.close(reading)
        both = await asyncio.gather(file.append([EXCHANGE]), file.append([QUEUE]), return_exceptions=True)
        with pytest.raises(StorageError, match="takes no more"):
            await file.append([BOUND])
        await file.close()
        return both

    both = asyncio.run(run())

    assert [type(error) for error in both] == [StorageError, StorageError]
    assert read(path) == []


def failing(monkeypatch, path, name, *, failures):
    """Make the next calls of a step on a file fail."""
    really, left = getattr(os, name), [failures]

    def step(descriptor, *arguments):
        if left[0] and Path(f"/proc/self/fd/{descriptor}").readlink() == path:
            left[0] -= 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return really(descriptor, *arguments)

    monkeypatch.setattr(os, name, step)


def failed_append(path):
    async def run():
        file, _ = DefinitionsFile.open(path, is_proven=True)
        try:
            await file.append([QUEUE])
        except StorageError as error:
            return type(error)
        finally:
            await file.close()

    return asyncio.run(run())


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_what_could_not_be_written_is_taken_back(tmp_path, monkeypatch, step):
    path = tmp_path / "definitions.amqp"
    append(path, [EXCHANGE])
    before = path.read_bytes()
    failing(monkeypatch, path, step, failures=1)

    assert failed_append(path) is NotWrittenError

    assert path.read_bytes() == before
    assert read(path) == [EXCHANGE]


@pytest.mark.parametrize("step", ["write", "fdatasync"])
def test_a_file_that_could_not_be_written_once_takes_the_next_changes(tmp_path, monkeypatch, step):
    """It took nothing more until a restart, although it was as it had been."""
    path = tmp_path / "definitions.amqp"
    create_definitions(path)

    async def run():
        file, _ = DefinitionsFile.open(path, is_proven=True)
        failing(monkeypatch, path, step, failures=1)
        with pytest.raises(NotWrittenError):
            await file.append([QUEUE])
        await file.append([EXCHANGE])
        await file.close()

    asyncio.run(run())

    assert read(path) == [EXCHANGE]


def test_what_cannot_be_taken_back_may_be_there_at_the_next_start(tmp_path, monkeypatch):
    path = tmp_path / "definitions.amqp"
    append(path, [EXCHANGE])
    failing(monkeypatch, path, "fdatasync", failures=1)
    failing(monkeypatch, path, "fsync", failures=1)

    assert failed_append(path) is StorageError

    assert read(path) == [EXCHANGE]


def test_what_has_a_proof_that_is_perhaps_on_the_disk_is_not_taken_back(tmp_path, monkeypatch):
    path = tmp_path / "definitions.amqp"
    append(path, [EXCHANGE])
    failing(monkeypatch, proof(path), "fdatasync", failures=1)

    assert failed_append(path) is StorageError

    assert read(path) == [EXCHANGE, QUEUE]


def test_a_closed_file_takes_nothing(tmp_path):
    create_definitions(tmp_path / "definitions.amqp")

    async def run():
        file, _ = DefinitionsFile.open(tmp_path / "definitions.amqp")
        await file.close()
        with pytest.raises(FileClosedError, match="closed"):
            await file.append([EXCHANGE])

    asyncio.run(run())


def test_a_full_disk_leaves_the_file_as_it_was_and_it_takes_more_when_there_is_room(tmp_path, small_disk):
    disk = small_disk(tmp_path / "disk", kilobytes=64)
    path = disk / "definitions.amqp"
    create_definitions(path)
    filler = disk / "filler"

    async def run():
        file, _ = DefinitionsFile.open(path)
        await file.append([EXCHANGE])
        before = path.read_bytes()
        with filler.open("wb", buffering=0) as filling, contextlib.suppress(OSError):
            while True:
                filling.write(b"x" * 4_096)
        many = [QUEUE] * 200
        for _ in range(2):
            with pytest.raises(DiskFullError, match="no space"):
                await file.append(many)
            assert path.read_bytes() == before
        filler.unlink()
        await file.append(many)
        await file.close()

    asyncio.run(run())

    assert read(path) == [EXCHANGE, *[QUEUE] * 200]


def proof(path):
    return path.with_name("definitions.crc")


@pytest.mark.parametrize("place", range(len(HEAD) + sum(len(encode(change)) for change in ALL)))
def test_a_flipped_bit_anywhere_is_refused_and_nothing_is_changed(tmp_path, place):
    path = tmp_path / "definitions.amqp"
    append(path, ALL)
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)
    before = proof(path).read_bytes()

    with pytest.raises(StorageError, match=r"definitions\.amqp' is corrupt (at|before) byte .*definitions repair"):
        read(path)

    assert (path.read_bytes(), proof(path).read_bytes()) == (bytes(content), before)


def test_a_file_that_lost_its_end_is_refused_wherever_it_ends(tmp_path):
    path = tmp_path / "definitions.amqp"
    append(path, ALL)
    whole = path.read_bytes()

    for left in range(len(whole)):
        for lost in (b"", bytes(len(whole) - left)):
            if whole[left:] == lost:
                continue
            path.write_bytes(whole[:left] + lost)
            with pytest.raises(StorageError, match=r"definitions\.amqp' is corrupt"):
                read(path)
            assert path.read_bytes() == whole[:left] + lost


def test_a_missing_file_is_refused(tmp_path):
    path = tmp_path / "definitions.amqp"
    append(path, ALL)
    path.unlink()

    with pytest.raises(StorageError, match=r"definitions\.amqp' is missing"):
        read(path)

    assert not path.exists()


def test_a_missing_proof_is_refused_where_there_was_one_and_made_for_a_file_of_an_earlier_version(tmp_path):
    path = written(tmp_path / "definitions.amqp", *ALL)

    with pytest.raises(StorageError, match=r"definitions\.crc' is missing"):
        DefinitionsFile.open(path, is_proven=True)
    assert not proof(path).exists()

    assert read(path) == ALL
    file, _ = DefinitionsFile.open(path, is_proven=True)
    asyncio.run(file.close())


def test_a_proof_of_which_no_slot_is_whole_is_refused(tmp_path):
    path = tmp_path / "definitions.amqp"
    append(path, [EXCHANGE], [QUEUE], [BOUND])
    content = bytearray(proof(path).read_bytes())
    for at in (3, 515):
        content[at] ^= 1
    proof(path).write_bytes(content)

    with pytest.raises(StorageError, match=r"definitions\.crc' is corrupt at byte 0"):
        read(path)


def test_one_slot_that_is_corrupt_leaves_the_other(tmp_path):
    path = tmp_path / "definitions.amqp"
    for change in ALL:
        append(path, [change])
    whole = proof(path).read_bytes()

    for at in (3, 515):
        content = bytearray(whole)
        content[at] ^= 1
        proof(path).write_bytes(content)
        assert read(path) == ALL


def test_a_copy_has_its_proof_and_a_file_that_changed_is_not_copied(tmp_path):
    path, target = tmp_path / "definitions.amqp", tmp_path / "copy"
    append(path, ALL)
    target.mkdir()

    async def run():
        file, _ = DefinitionsFile.open(path)
        copy = file.begin_backup()
        await file.append([QUEUE])
        copy.write(target / path.name)
        copy.close()
        bad = file.begin_backup()
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes(content)
        with pytest.raises(StorageError, match="corrupt before byte"):
            bad.write(target / path.name)
        bad.close()
        await file.close()

    asyncio.run(run())

    file, changes = DefinitionsFile.open(target / path.name, is_proven=True)
    asyncio.run(file.close())
    assert changes == ALL


def test_a_file_that_changed_is_not_rewritten(tmp_path):
    path = tmp_path / "definitions.amqp"
    append(path, ALL)

    async def run():
        file, _ = DefinitionsFile.open(path, dead_frames_max=1)
        content = bytearray(path.read_bytes())
        content[content.index(b"errors")] ^= 1
        path.write_bytes(content)
        for _ in range(4):
            with suppress(StorageError):
                await file.append([QUEUE, QueueDeleted(QueueName("errors"))])
        with pytest.raises(StorageError, match="takes no more"):
            await file.append([QUEUE])
        await file.close()
        return bytes(content)

    changed = asyncio.run(run())

    assert path.read_bytes().startswith(changed)


def test_nothing_is_appended_to_a_file_that_was_replaced_when_the_disk_was_full(tmp_path, monkeypatch):
    path = tmp_path / "definitions.amqp"
    append(path, ALL)
    really = definitions_amqp.write_file  # type: ignore[attr-defined]

    def write_file(target, content):
        really(target, content)
        raise DiskFullError(Thing("file", str(target)), "cannot be written", "free space")

    async def append_some(file):
        for _ in range(5):
            await file.append([QUEUE, QueueDeleted(QueueName("errors"))])

    async def run():
        file, _ = DefinitionsFile.open(path, dead_frames_max=1)
        monkeypatch.setattr(definitions_amqp, "write_file", write_file)
        with pytest.raises(StorageError, match="takes no more"):
            await append_some(file)
        await file.close()

    asyncio.run(run())

    fold = Fold()
    fold.apply_all(read(path))
    assert list(fold.exchanges) == ["logs"]
