"""A backup that a client downloads: it is released whatever the client does, and gives its parts in order."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

import pytest

from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.model.names import ConnectionId
from penstock.services.downloads import PART_BYTES, Download

CONNECTION = ConnectionId(7)


class FakeStream:
    """An archive of as many parts; `hold` makes a read wait until it is cleared, `fails` makes it raise."""

    def __init__(self, parts: int = 2) -> None:
        self.sha256 = ""
        self.total_bytes = parts * PART_BYTES
        self.left = parts
        self.fails = False
        self.is_closed = False
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()

    def read(self, length: int) -> bytes:
        self.entered.set()
        assert self.go.wait(30)
        assert not self.is_closed
        if self.fails:
            raise StorageError(Thing("backup", "/"), "failed: cannot read msgs.1", "repair the disk")
        if self.left == 0:
            self.sha256 = "digest"
            return b""
        self.left -= 1
        return bytes(length)

    def close(self) -> None:
        assert self.go.is_set(), "closed while a part is read"
        self.is_closed = True


class Case:
    """A download, and whether it was released."""

    def __init__(self, *, idle_seconds: float = 60) -> None:
        self.stream = FakeStream()
        self.released = asyncio.Event()
        kept = ExitStack()
        kept.callback(self.released.set)
        self.download = Download("ada", CONNECTION, self.stream, kept, idle_seconds)


def run(scenario: Callable[[Case], Awaitable[None]], **options: float) -> None:
    async def begin() -> None:
        case = Case(**options)
        await asyncio.wait_for(scenario(case), 20)
        await asyncio.wait_for(case.released.wait(), 20)
        assert case.stream.is_closed

    asyncio.run(begin())


def test_the_last_part_has_the_digest_and_releases_the_files() -> None:
    async def scenario(case: Case) -> None:
        for number in range(2):
            part = await case.download.read(number * PART_BYTES)
            assert (len(part.content), part.is_last, part.sha256) == (PART_BYTES, False, "")
        last = await case.download.read(2 * PART_BYTES)
        assert (last.content, last.is_last, last.sha256) == (b"", True, "digest")
        assert case.released.is_set()

    run(scenario)


def test_a_client_that_asks_for_nothing_more_is_not_waited_for() -> None:
    async def scenario(case: Case) -> None:
        await case.download.read(0)
        await case.released.wait()
        with pytest.raises(PreconditionFailedError):
            await case.download.read(PART_BYTES)

    run(scenario, idle_seconds=0.01)


def test_a_client_that_goes_away_releases_the_files_at_once() -> None:
    async def scenario(case: Case) -> None:
        case.download.connection_ended(ConnectionId(8))
        await case.download.read(0)
        case.download.connection_ended(CONNECTION)

    run(scenario)


def test_files_are_released_after_the_read_that_was_under_way() -> None:
    async def scenario(case: Case) -> None:
        case.stream.go.clear()
        reading = asyncio.ensure_future(case.download.read(0))
        await asyncio.to_thread(case.stream.entered.wait)
        case.download.connection_ended(CONNECTION)
        await asyncio.sleep(0.01)
        assert not case.released.is_set()
        case.stream.go.set()
        with pytest.raises(Exception, match="has ended"):
            await reading

    run(scenario)


def test_parts_are_given_in_order_and_one_at_a_time() -> None:
    async def scenario(case: Case) -> None:
        with pytest.raises(PreconditionFailedError, match="continues at byte 0, not at 5"):
            await case.download.read(5)
        case.stream.go.clear()
        reading = asyncio.ensure_future(case.download.read(0))
        await asyncio.to_thread(case.stream.entered.wait)
        with pytest.raises(PreconditionFailedError, match="one part at a time"):
            await case.download.read(0)
        case.stream.go.set()
        await reading
        await case.download.end()

    run(scenario)


def test_a_file_that_cannot_be_read_ends_the_backup_with_its_name() -> None:
    async def scenario(case: Case) -> None:
        case.stream.fails = True
        with pytest.raises(StorageError, match=r"cannot read msgs\.1"):
            await case.download.read(0)

    run(scenario)
