"""Brokers of a cluster as far as their metadata goes: over a log in memory, each with a data directory of its own."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.asking import Asker, respond
from penstock.cluster.meta.checkpoint_copies import CheckpointFetcher, CheckpointServer
from penstock.cluster.meta.files import MetaFiles
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.storage import DataDirectory
from support.meta_log import BrokerLog, SharedLog

T = TypeVar("T")


class Inline(ThreadPoolExecutor):
    """An executor that runs work at once, so that a seed decides about everything."""

    def submit(self, work: Callable[..., T], /, *args: Any, **kwargs: Any) -> "Future[T]":
        future: Future[T] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - the future's owner gets it
            future.set_exception(error)
        return future


def run_inline(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in a loop without threads."""

    async def run() -> T:
        asyncio.get_running_loop().set_default_executor(Inline(1))
        return await work

    return asyncio.run(run())


class MetaBroker:
    """One broker; `start` and `kill` take turns."""

    def __init__(self, cluster: "MetaCluster", name: str, directory: Path, checkpoint_records: int) -> None:
        self.name = name
        self.directory = directory
        self.boot = 0
        self.leader: Leader | None = None
        self.asker: Asker
        self.applier: Applier
        self.checkpoints: CheckpointServer
        self._cluster = cluster
        self._checkpoint_records = checkpoint_records
        self._data: DataDirectory | None = None
        self._files: MetaFiles
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def state(self) -> MetaState:
        return self.applier.state

    async def start(self) -> None:
        """Start a boot: open the files and apply what is committed. It does not join."""
        self.boot += 1
        self._data = DataDirectory.open(self.directory)
        log = BrokerLog(self._cluster.log, self.name)
        self._files, state = await MetaFiles.open(self._data, self._checkpoint_records)
        self.checkpoints = CheckpointServer(self._files)
        fetcher = CheckpointFetcher(self._others, self._cluster.ask_checkpoint, retry_s=0)
        self.applier = Applier(state, self._files, log, fetcher)
        self.leader = Leader(log, self.applier)
        self.asker = Asker(Link(self._cluster), self.applier, log, retry_s=0)
        self._tasks = [asyncio.ensure_future(self.applier.run()), asyncio.ensure_future(self.leader.run())]

    @property
    def checkpoint(self) -> int:
        """The position of its checkpoint on the disk."""
        return self._files.checkpoint

    async def _others(self) -> list[int]:
        return [number for number, other in enumerate(self._cluster.brokers.values()) if other is not self]

    async def join(self) -> int:
        """Begin the session of the boot, in place of the one before."""
        return await self.asker.join(BrokerName(self.name), self.boot)

    async def kill(self) -> None:
        """End the broker's tasks where they are. Its files stay as they are."""
        self.leader = None
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with suppress(asyncio.CancelledError):
                await task
        self.checkpoints.close()
        await self._files.close()
        assert self._data is not None
        self._data.close()


class MetaCluster:
    """Several brokers, none of which is started."""

    def __init__(self, log: SharedLog, root: Path, names: list[str], checkpoint_records: int) -> None:
        self.log = log
        self.brokers = {name: MetaBroker(self, name, root / name, checkpoint_records) for name in names}

    async def ask_checkpoint(self, number: int, question: bytes) -> bytes:
        """Ask the broker of a number for a part of its checkpoint; questions and answers are lost."""
        await self.log.wait()
        broker = list(self.brokers.values())[number]
        if broker.leader is None or self.log.random.random() < self.log.loses:
            raise NotCarriedOutError
        answer = await broker.checkpoints.answer(question)
        if self.log.random.random() < self.log.loses:
            raise LostCallError
        return answer

    def shorten(self) -> None:
        """Remove the records that all brokers that are alive have in their checkpoints."""
        self.log.remove(min((broker.checkpoint for broker in self.alive()), default=0))

    def alive(self) -> list[MetaBroker]:
        return [broker for broker in self.brokers.values() if broker.leader is not None]


class Link:
    """The way to the leader, which loses requests and replies, and delivers requests twice."""

    def __init__(self, cluster: MetaCluster) -> None:
        self._cluster = cluster

    async def ask(self, request: bytes) -> bytes:
        random, loses = self._cluster.log.random, self._cluster.log.loses
        epoch = self._cluster.log.epoch
        await self._cluster.log.wait()
        if random.random() < loses:
            raise UnknownOutcomeError
        if random.random() < loses:
            with suppress(NotLeaderError, UnknownOutcomeError):
                await self._deliver(request, epoch)
        response = await self._deliver(request, epoch)
        await self._cluster.log.wait()
        if random.random() < loses:
            raise UnknownOutcomeError
        return response

    async def _deliver(self, request: bytes, epoch: int) -> bytes:
        leader = self._cluster.brokers.get(self._cluster.log.leader or "")
        if leader is None or leader.leader is None:
            raise NotLeaderError
        return await respond(leader.leader, request, epoch)
