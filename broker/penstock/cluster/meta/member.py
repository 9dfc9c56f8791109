"""This broker's part in the `meta` shard: its replica, its files, and the tasks that apply, decide and ask."""

import asyncio
import secrets
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

from penstock.cluster.calls import Calls, Handler
from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.asking import Asker
from penstock.cluster.meta.files import CHECKPOINT_RECORDS, MetaFiles
from penstock.cluster.meta.leader_link import CallingLink, handlers
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.replicated_log import ReplicatedMetaLog
from penstock.cluster.meta.resigning import resign_after
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.kit.tasks import spawn
from penstock.storage import DataDirectory

META: Final = "meta"
"""The shard's name at the coordinator, and its directory."""
META_OPTIONS: Final = ReplicaOptions(segment_bytes_max=16 * 1024 * 1024, has_queues=False)


class MetaMember:
    """It runs from `start` to `stop`. `asker` takes commands from then on; `join` begins its session."""

    def __init__(self, host: ClusterHost, data: DataDirectory, checkpoint_records: int = CHECKPOINT_RECORDS) -> None:
        self._host = host
        self._data = data
        self._checkpoint_records = checkpoint_records
        self._tasks: list[asyncio.Task[None]] = []
        self._shard = b""
        self._calls: Calls
        self._files: MetaFiles
        self._applier: Applier
        self.asker: Asker

    @property
    def state(self) -> MetaState:
        return self._applier.state

    @property
    def leads(self) -> bool:
        """Whether this broker leads the shard, as far as it knows."""
        return self._host.epoch_of(self._shard) is not None

    async def start(self, founders: Sequence[BrokerName] = ()) -> None:
        """Open the replica and the files, and apply what is committed. `founders` are the brokers of a new cluster.

        Raises StorageError.
        """
        replica = await self._host.open(META, directory_of(self._data), META_OPTIONS, founders)
        self._shard = replica.shard
        self._files, state = await MetaFiles.open(self._data, self._checkpoint_records)
        answers: dict[int, Handler] = {}
        self._calls = Calls(partial(self._host.send, replica.shard), answers, secrets.randbits(63))
        link = CallingLink(replica.shard, self._host, self._calls)
        log = ReplicatedMetaLog(replica, link.ask_read_index)
        self._applier = Applier(state, self._files, log)
        link.leader = leader = Leader(log, self._applier)
        answers |= handlers(leader, log)
        self.asker = Asker(link, self._applier, log)
        self._host.receive(replica.shard, self._calls)
        workers = [
            spawn(self._applier.run(), name="meta applier"),
            spawn(leader.run(), name="meta leader"),
        ]
        resigning = resign_after(workers, partial(self._host.hand_over, replica.shard))
        self._tasks = [spawn(resigning, name="meta resigning"), *workers]

    async def join(self) -> int:
        """Begin the session of this boot, and return its number. It waits as long as there is no leader."""
        return await self.asker.join(self._host.me.name, self._host.me.boot)

    async def applied(self, position: int) -> None:
        """Return when everything up to a position is applied here. Raises StoppedError."""
        await self._applier.applied(position)

    async def stop(self) -> None:
        """End the tasks and close the files. The host closes the replica."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()
        await self._files.close()


def directory_of(data: DataDirectory) -> Path:
    """Return the directory with the log of the shard."""
    return data.path / META
