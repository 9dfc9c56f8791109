"""The recovery of a cluster's metadata by an operator, and what follows from it on a broker that has more.

It works while this broker waits for its cluster, too: the metadata is not read, but for the brokers that it names.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from penstock.cluster.coordinator import Coordinator
from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.anew import begin_anew, mark_anew
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName, ShardRecord
from penstock.cluster.recovering import AfterHalt, lost_by
from penstock.kit.clock import SystemClock
from penstock.kit.logging import logger
from penstock.model.errors import InvalidArgumentError, NotFoundError, StorageError, Thing
from penstock.model.names import VhostName
from penstock.native import read_replica
from penstock.node.in_cluster.recovered_log import step_after_halt
from penstock.node.in_cluster.recoveries import ShardRecovery, Subject
from penstock.storage import directory_name
from penstock.storage.cluster_json import META
from penstock.storage.setting_aside import set_aside
from penstock.storage.vhost_files import shard_directories

LOOK_S: Final = 1.0
READ_AGAIN_S: Final = 1.0
VERB: Final = "recover-metadata"
_FOLDERS: Final = "[0-9a-f]" * 40
_log = logger("cluster")


class MetadataRecovery:
    """`silent` returns the brokers whose sessions have ended, `brokers` those of the settings."""

    def __init__(
        self,
        host: ClusterHost,
        member: MetaMember,
        coordinator: Coordinator,
        directory: Path,
        brokers: Sequence[BrokerName],
        silent: Callable[[], frozenset[str]],
    ) -> None:
        self._host = host
        self._member = member
        self._coordinator = coordinator
        self._directory = directory
        self._brokers = brokers
        self._silent = silent
        self._beating: frozenset[str] = frozenset()
        self._recovery = ShardRecovery(host, member, self._is_alive, self._folder, SystemClock())
        self.answer_standing = self._recovery.answer_standing
        """Answers other brokers, also before this one has joined."""

    async def answer(self, request: Mapping[str, Any], user: str) -> Mapping[str, Any]:
        """Return what a recovery from a broker costs, and carry it out if the loss is accepted.

        Raises as `ShardRecovery.recover`, and InvalidArgumentError.
        """
        broker, accepts_loss = request.get("broker"), request.get("accept_loss")
        thing = Thing("shard", META)
        if not isinstance(broker, str) or not isinstance(accepts_loss, bool):
            raise InvalidArgumentError(thing, "needs the name of a broker", "use the command of the broker's version")
        known = {*self._brokers, *self._member.state.brokers}
        if broker not in known:
            raise NotFoundError(Thing("broker", broker), f"choose one of {', '.join(sorted(known))}")
        self._beating = frozenset(await self._coordinator.beats())
        place = Subject(META, thing, VhostName(""), sorted(known))
        found = await self._recovery.recover(place, BrokerName(broker), user, accepts_loss=accepts_loss)
        return asdict(found)

    def _is_alive(self, broker: BrokerName) -> bool:
        return broker in self._beating and broker not in self._silent()

    def _folder(self, shard: str, vhost: str) -> Path:
        return self._directory / (META if shard == META else directory_name(vhost))

    # ------------------------------------------------------------ a broker that has more

    async def leave_lost(self) -> None:
        """Set the metadata of this broker aside, before it is opened, where a recovery counted it as lost.

        Without the coordinator it is opened, and halts where it has what its leader lacks. Raises StorageError.
        """
        identity = await asyncio.to_thread(read_replica, str(self._directory / META))
        if identity is not None:
            record = await self._record_now()
            if record is not None and lost_by(record, identity.replica, identity.promised) is not None:
                await asyncio.to_thread(mark_anew, self._directory)
        place = await asyncio.to_thread(begin_anew, self._directory)
        if place is not None:
            reason = "it was recovered from another broker, which may lack a part of it"
            _log.error("metadata set aside", reason=reason, place=str(place))

    async def _record_now(self) -> ShardRecord | None:
        try:
            return await self._host.read_record(META)
        except StorageError as error:
            _log.warning("coordinator not read before the metadata was opened", reason=str(error))
            return None

    async def sort_out(self, state: MetaState) -> None:
        """Set the logs of virtual hosts aside that the recovered metadata does not name, before their folders go."""
        for folder in sorted(self._directory.glob(_FOLDERS)):
            name = VhostName(_name_of(folder))
            shards = state.shards_of(name) if name in state.vhosts else []
            for log in await asyncio.to_thread(shard_directories, folder):
                number = int(log.name) if log != folder else 0
                await self._keep_log(name, shards[number] if number < len(shards) else None, log)

    async def _keep_log(self, vhost: VhostName, shard: str | None, folder: Path) -> None:
        """Set the log of a replica aside that is of no shard any more."""
        identity = await asyncio.to_thread(read_replica, str(folder))
        if identity is None or (shard is not None and await self._is_of_shard(shard, identity.replica)):
            return
        place = await asyncio.to_thread(set_aside, folder, identity.replica)
        why = "log set aside: the recovered metadata does not name its virtual host"
        _log.error(why, vhost=vhost, place=str(place))

    async def _is_of_shard(self, shard: str, replica: str) -> bool:
        """Return whether a replica has a place in a shard, whose virtual host may have been made anew."""
        while True:
            try:
                record = await self._host.read_record(shard)
            except StorageError as error:
                _log.warning("coordinator not read", shard=shard, reason=str(error))
                await asyncio.sleep(READ_AGAIN_S)
                continue
            return record is not None and replica in record.replicas

    async def until_replaced(self) -> str:
        """Return when this broker has to start again because the metadata was recovered, and why."""
        while True:
            await asyncio.sleep(LOOK_S)
            replica = self._host.hosted(META)
            if replica is None or replica.role.halted is None:
                continue
            step = await step_after_halt(self._host, META, replica, replica.role)
            if step is AfterHalt.BEGIN_ANEW:
                await asyncio.to_thread(mark_anew, self._directory)
                return "the metadata was recovered from a broker that has less; the next start sets it aside here"
            if step is not None:
                return "the metadata was recovered"


def _name_of(folder: Path) -> str:
    try:
        return (folder / ".vhost").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
