"""Any sequence of changes survives the file, and collecting its garbage changes no result."""

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import StorageError
from penstock.storage import DefinitionsFile, Fold
from penstock.storage.amqp_frames import FrameError, decode, encode, frame_size
from penstock.storage.definitions_amqp import create_definitions, read_changes
from support.changes import changes


def state(fold):
    return (
        {name: (thing.kind, encode_thing(thing)) for name, thing in fold.exchanges.items()},
        {name: encode_thing(thing) for name, thing in fold.queues.items()},
        set(fold.bindings),
        fold.highest_queue_id,
    )


def encode_thing(thing):
    from penstock.storage import Declared

    return encode(Declared(thing))


@given(changes)
def test_a_change_comes_back_from_its_frame(change):
    frame = encode(change)

    assert frame_size(frame, 0) == len(frame)
    assert encode(decode(frame)) == frame


@given(st.lists(changes, max_size=12))
def test_folding_what_a_fold_gives_changes_nothing(all_changes):
    fold, again = Fold(), Fold()
    fold.apply_all(all_changes)

    again.apply_all(fold.changes())

    assert state(again) == state(fold)


@pytest.mark.slow
@given(st.lists(st.lists(changes, max_size=4), max_size=4), st.integers(0, 8))
def test_whatever_is_appended_is_read_again(rounds, dead_frames_max):
    async def run(path):
        create_definitions(path)
        file, _ = DefinitionsFile.open(path, dead_frames_max)
        for each in rounds:
            await file.append(each)
        await file.close()

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "definitions.amqp"
        asyncio.run(run(path))
        file, found = DefinitionsFile.open(path)
        asyncio.run(file.close())
    expected, actual = Fold(), Fold()
    expected.apply_all([change for each in rounds for change in each])
    actual.apply_all(found)

    assert state(actual) == state(expected)


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_an_error(content):
    with suppress(StorageError):
        changes, end = read_changes(Path("definitions.amqp"), b"\x01\0\0\0" + content)
        assert sum(len(encode(change)) for change in changes) <= end


@given(changes, st.data())
def test_a_changed_byte_of_a_frame_is_an_error_or_another_frame(change, data):
    frame = bytearray(encode(change))
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))

    with suppress(FrameError):
        size = frame_size(bytes(frame), 0)
        if size == len(frame):
            assert decode(bytes(frame)) is not None
