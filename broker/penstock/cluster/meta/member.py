"""This broker's part in the `meta` shard: its replica, its files, and the tasks that apply, decide and ask."""

import asyncio
import secrets
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from penstock.cluster.calls import Calls, Handler, LostCallError, NotCarriedOutError
from penstock.cluster.host import ClusterHost, ReplicaOptions
from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.asking import RETRY_S, Asker
from penstock.cluster.meta.checkpoint import checkpoint_of
from penstock.cluster.meta.checkpoint_copies import CheckpointFetcher, CheckpointServer
from penstock.cluster.meta.commands import Addresses
from penstock.cluster.meta.files import CHECKPOINT_RECORDS, LeaveVhost, MetaFiles
from penstock.cluster.meta.leader_link import OF_LEADER, CallingLink, Method, handlers
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import NotLeaderError
from penstock.cluster.meta.replicated_log import ReplicatedMetaLog
from penstock.cluster.meta.resigning import resign_after
from penstock.cluster.meta.shortening import Shortener, encode_position
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.cluster.recovering import recovered_in
from penstock.cluster.translation import broker_number
from penstock.kit.tasks import spawn
from penstock.model.errors import StoppedError
from penstock.model.names import VhostName
from penstock.native import ReplicaBackup
from penstock.storage import DataDirectory
from penstock.storage.cluster_json import META

_POSITION: Final = struct.Struct("<Q")
META_OPTIONS: Final = ReplicaOptions(segment_bytes_max=4 * 1024 * 1024, has_queues=False)


@dataclass(frozen=True, slots=True)
class MetaBackup:
    """The metadata at a position: its state as a checkpoint, and a log with all records after it.

    `shards` has the virtual host and the brokers of each shard, and `numbers` those of virtual hosts.
    """

    position: int
    checkpoint: bytes
    log: ReplicaBackup
    shards: Mapping[str, tuple[VhostName, Sequence[BrokerName]]]
    brokers: Sequence[BrokerName]
    numbers: Mapping[VhostName, int]


class MetaMember:
    """It runs from `start` to `stop`. `asker` takes commands from then on; `join` begins its session."""

    def __init__(
        self,
        host: ClusterHost,
        data: DataDirectory,
        checkpoint_records: int = CHECKPOINT_RECORDS,
        options: ReplicaOptions = META_OPTIONS,
    ) -> None:
        self._host = host
        self._data = data
        self._checkpoint_records = checkpoint_records
        self._options = options
        self._me = broker_number(host.me.name)
        self._tasks: list[asyncio.Task[None]] = []
        self._shard = b""
        self._answers: dict[int, Handler] = {}
        self._calls: Calls
        self._files: MetaFiles
        self._checkpoints: CheckpointServer
        self._replica: HostedReplica
        self._applier: Applier
        self._joined_after = 0
        """The epoch of the newest recovery of the metadata before this boot joined."""
        self._before_adoption: Callable[[MetaState], Awaitable[None]] | None = None
        self._before_served: Callable[[VhostName], Awaitable[None]] | None = None
        self.asker: Asker
        self.session = 0
        """The session of this boot, once it has joined."""

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
        replica = await self._host.open(META, directory_of(self._data), self._options, founders)
        self._replica, self._shard = replica, replica.shard
        self._files, state = await MetaFiles.open(self._data, self._checkpoint_records)
        send = partial(self._host.send, replica.shard)
        self._calls = Calls(send, self._answers, secrets.randbits(63), of_leader=OF_LEADER)
        link = CallingLink(replica.shard, self._host, self._calls)
        log = ReplicatedMetaLog(replica, link.ask_read_index)
        self._checkpoints = CheckpointServer(self._files)
        fetcher = CheckpointFetcher(self._brokers, self._ask_checkpoint)
        self._applier = Applier(state, self._files, log, fetcher)
        link.leader = leader = Leader(log, self._applier, self._recovered_in, self._host.used_protocol)
        self._answers |= handlers(leader, log)
        self._answers |= {
            Method.CHECKPOINT: self._checkpoints.answer,
            Method.CHECKPOINT_POSITION: self._answer_checkpoint_position,
            Method.SERVED: self._answer_served,
        }
        shortener = Shortener(replica, self._files, self._me, self._ask_checkpoint_position)
        self.asker = Asker(link, self._applier, log, is_joined=lambda: not self.needs_join)
        self._host.receive(replica.shard, self._calls)
        workers = [
            spawn(self._applier.run(), name="meta applier"),
            spawn(leader.run(), name="meta leader"),
        ]
        resigning = resign_after(workers, partial(self._host.hand_over, replica.shard))
        self._tasks = [
            spawn(resigning, name="meta resigning"),
            *workers,
            spawn(shortener.run(), name="meta shortener"),
        ]

    async def join(self, addresses: Addresses | None = None) -> int:
        """Begin the session of this boot, and return its number. It waits as long as there is no leader."""
        if self._files.begins_anew:
            await self._adopt()
        recovered_in = self._recovered_in()
        self.session = await self.asker.join(self._host.me.name, self._host.me.boot, addresses)
        self._joined_after = recovered_in
        return self.session

    @property
    def needs_join(self) -> bool:
        """Whether the metadata was recovered since this broker joined: the beginning of its session may be lost."""
        return self._recovered_in() > self._joined_after

    @property
    def stopped(self) -> StoppedError | None:
        """Why nothing more is applied here; None while it is."""
        return self._applier.stopped

    def before_deletion(self, leave: LeaveVhost) -> None:
        """Call this with the name of each virtual host before its directory is deleted."""
        self._files.leave = leave

    def before_adoption(self, prepare: Callable[[MetaState], Awaitable[None]]) -> None:
        """Wait for this before the files of a lost state become those of a recovered one."""
        self._before_adoption = prepare

    def before_served(self, applied: Callable[[VhostName], Awaitable[None]]) -> None:
        """Wait for this, with the name of a virtual host, before another broker hears that its queues have a change."""
        self._before_served = applied

    async def served_by(self, broker: BrokerName, vhost: VhostName) -> None:
        """Return when the queues of a virtual host at another broker have all that is applied here.

        It returns, too, when that broker does not answer: the connection broke, or it is of a version before this.
        """
        question = _POSITION.pack(self.state.position) + vhost.encode()
        with suppress(NotCarriedOutError, LostCallError):
            await self.call(broker, Method.SERVED, question)

    def answer(self, method: Method, handler: Handler) -> None:
        """Answer calls of other brokers by this from now on."""
        self._answers[method] = handler

    async def call(self, broker: BrokerName, method: Method, content: bytes) -> bytes:
        """Return the answer of another broker. Raises NotCarriedOutError and LostCallError."""
        return await self._calls.call(broker_number(broker), method, content)

    async def applied(self, position: int) -> None:
        """Return when everything up to a position is applied here. Raises StoppedError."""
        await self._applier.applied(position)

    async def begin_backup(self) -> MetaBackup:
        """Fix a copy of all that was answered anywhere before. Raises NotLeaderError, StoppedError and StorageError."""
        await self.asker.latest()
        return await self._applier.unchanged(self._copy)

    async def _copy(self, state: MetaState) -> MetaBackup:
        """Copy the state and the log, which has all records after the state: only those of checkpoints are removed."""
        checkpoint = await asyncio.to_thread(checkpoint_of, state)
        shards = {shard: (name, state.placement[shard]) for name in state.vhosts for shard in state.shards_of(name)}
        log = await self._replica.begin_backup()
        return MetaBackup(state.position, checkpoint, log, shards, tuple(state.brokers), dict(state.numbers))

    async def stop(self) -> None:
        """Let another broker lead, end the tasks and close the files. The host closes the replica."""
        await self._host.resign(self._replica)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()
        self._checkpoints.close()
        await self._files.close()

    def _recovered_in(self) -> int:
        return recovered_in(self._host.known_record(META))

    async def _adopt(self) -> None:
        """Make the files those of the recovered state, once all of that is known. It waits for a leader."""
        while True:
            try:
                await self.asker.latest()
                break
            except NotLeaderError:
                await asyncio.sleep(RETRY_S)

        async def adopt(state: MetaState) -> None:
            if self._before_adoption is not None:
                await self._before_adoption(state)
            await self._files.adopt(state)

        await self._applier.unchanged(adopt)

    async def _brokers(self) -> list[int]:
        """Return the other brokers with a replica, the leader first."""
        record = await self._replica.record()
        if record is None:
            return []
        others = {holder.broker for holder in record.replicas} - {self._me}
        return sorted(others, key=lambda broker: (broker != record.leader, broker))

    async def _ask_checkpoint(self, broker: int, question: bytes) -> bytes:
        return await self._calls.call(broker, Method.CHECKPOINT, question)

    async def _ask_checkpoint_position(self, broker: int) -> bytes:
        return await self._calls.call(broker, Method.CHECKPOINT_POSITION, b"")

    async def _answer_served(self, question: bytes) -> bytes:
        try:
            (position,) = _POSITION.unpack_from(question)
            vhost = VhostName(question[_POSITION.size :].decode())
            await self._applier.applied(position)
        except (struct.error, UnicodeDecodeError, StoppedError) as error:
            raise NotCarriedOutError(str(error)) from error
        if self._before_served is not None:
            await self._before_served(vhost)
        return b""

    async def _answer_checkpoint_position(self, _: bytes) -> bytes:
        return encode_position(self._files.checkpoint)


def directory_of(data: DataDirectory) -> Path:
    """Return the directory with the log of the shard."""
    return data.path / META
