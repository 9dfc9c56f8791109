"""This broker's membership in its cluster: the coordinator, the connections to other brokers, and the metadata.

A broker beats before it joins, so that whoever knows its boot from the metadata has seen its beat, too. The leader of
the metadata ends the sessions of brokers that are gone; a broker whose own session was ended joins again.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from penstock.cluster.beating import keep_beating
from penstock.cluster.coordinator import Coordinator
from penstock.cluster.host import FRAME_BYTES_MAX, ClusterHost, Member
from penstock.cluster.meta.commands import Addresses, EndSession, FoundCluster
from penstock.cluster.meta.log import NotLeaderError
from penstock.cluster.meta.member import META_OPTIONS, MetaMember
from penstock.cluster.opening import open_coordinator
from penstock.cluster.record import BrokerName
from penstock.cluster.shard_calls import STANDING
from penstock.cluster.translation import broker_number
from penstock.kit.clock import SystemClock
from penstock.kit.logging import logger
from penstock.kit.tasks import spawn
from penstock.model.errors import FaultError, RefusedError
from penstock.model.names import DEFAULT_VHOST
from penstock.native import ClusterNode, PeerTls
from penstock.node.cluster_settings import brokers_of, host_of
from penstock.node.config import Address, Settings, StartError
from penstock.node.in_cluster.members import Members
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.metadata_recovery import VERB, MetadataRecovery
from penstock.node.in_cluster.operator_socket import OperatorSocket
from penstock.node.in_cluster.restored import seat_restored
from penstock.storage import DataDirectory
from penstock.storage.cluster_backup import forget_restored
from penstock.storage.cluster_json import belong_to

LOOK_S: Final = 3.0
"""Sessions that are over are ended, and the file of secrets is read, as often as this."""
JOIN_S: Final = 0.1
SECRET_BYTES_MIN: Final = 16
SECONDS_OF_HOUR: Final = 3600.0
WAITING_S: Final = 30.0
"""A broker that waits for its cluster says so as often as this."""
_log = logger("cluster")


@dataclass(frozen=True, slots=True)
class FirstAccount:
    """The first user of a new cluster."""

    name: str
    password_hash: str
    algorithm: str


class Membership:
    """It is opened, then joined, and closed at the end."""

    def __init__(self, settings: Settings, directory: DataDirectory, end: Callable[[], None]) -> None:
        """Open the coordinator, and listen for other brokers. Raises StartError, StorageError and RefusedError.

        `end` is called when this broker must not serve any longer.
        """
        belong_to(directory.path, settings.cluster, settings.cluster_broker)
        assert settings.cluster_secret_file is not None
        self._settings = settings
        self._directory = directory.path
        self._secret_file = settings.cluster_secret_file
        self._secrets = read_secrets(self._secret_file)
        self.me = BrokerName(settings.cluster_broker)
        self._brokers = {BrokerName(name): at for name, at in brokers_of(settings.cluster_brokers).items()}
        self._coordinator: Coordinator = open_coordinator(settings.cluster_coordinator, directory.path)
        cluster, boot = cluster_id(settings.cluster), secrets.randbits(63)
        self._node = _listen(settings, cluster, boot, self._secrets)
        self.host = ClusterHost(self._node, self._coordinator, Member(cluster, self.me, boot))
        options = replace(META_OPTIONS, page_cache_lost=directory.may_have_lost_page_cache)
        self.member = MetaMember(self.host, directory, options=options)
        self._members = Members(self.host, self.member, self._brokers)
        self.metadata: Metadata
        """Set by `join`."""
        self._end = end
        self._has_started = False
        self._tasks: list[asyncio.Task[None]] = []
        self._silent: set[str] = set()
        """The brokers whose beats have stopped."""
        self._recovery = MetadataRecovery(
            self.host,
            self.member,
            self._coordinator,
            directory.path,
            list(self._brokers),
            lambda: frozenset(self._silent),
        )
        self._socket = OperatorSocket(directory.path, {VERB: self._recovery.answer})
        self._ended: dict[BrokerName, int] = {}
        """The boots of brokers whose sessions are over."""

    async def join(self) -> Metadata:
        """Take part in the cluster, and return the metadata once this broker has all of it.

        It waits as long as too few brokers are there. Raises StorageError, and StartError for a restored directory
        that is not of a new cluster.
        """
        is_restored = await seat_restored(self._directory, self._settings.cluster, self.me, self._coordinator)
        await self._recovery.leave_lost()
        self.host.start()
        for broker, address in self._brokers.items():
            if broker != self.me:
                self.host.set_peer(broker, address)
        await self.member.start(list(self._brokers))
        self._has_started = True
        self.member.answer(STANDING.method, STANDING.handler(self._recovery.answer_standing))
        self.member.before_adoption(self._recovery.sort_out)
        await self._socket.start()
        self._spawn(self._end_if_replaced(), "recovery")
        self._spawn(self._members.run(), "members")
        await self._first_beat()
        me = self.host.me
        beating = keep_beating(self._coordinator, me.name, me.boot, self._hear_session, SystemClock())
        self._spawn(beating, "beats")
        _log.info("joining", cluster=self._settings.cluster, broker=self.me, peers=self.host.address)
        waiting = spawn(self._say_waiting(), name="cluster waiting")
        try:
            await self._check_added()
            await self.member.join(self._addresses())
        finally:
            waiting.cancel()
        self._members.join()
        member = self.member
        self.metadata = Metadata(self.me, member.asker, lambda: member.state, lambda: member.session, member.served_by)
        if is_restored:
            await self._end_restored()
        self._spawn(self._keep_sessions(), "sessions")
        self._spawn(self._keep_secrets(), "secrets")
        return self.metadata

    async def found(self, first: Callable[[], FirstAccount]) -> None:
        """Make the first user and virtual host of a new cluster; another broker may be faster."""
        state = self.metadata.state
        if len(state.users) or state.vhosts:
            return
        account = await asyncio.to_thread(first)
        brokers = tuple(self._brokers)
        digest, shards = (account.password_hash, account.algorithm), self._settings.default_vhost_shards
        command = FoundCluster(brokers, DEFAULT_VHOST, account.name, *digest, shards)
        await self.member.asker.submit(command)

    def is_alive(self, broker: BrokerName) -> bool:
        """Return whether a broker has joined and its session goes on, as far as this broker knows."""
        known = self.metadata.state.brokers.get(broker)
        return known is not None and known.session != 0 and broker not in self._ended

    def reason_not_ready(self) -> str:
        """Return why this broker takes no part in its cluster, or an empty text."""
        stopped = self.member.stopped
        if stopped is not None:
            return f"the metadata of the cluster is not applied any more: {stopped.cause}"
        mine = self.metadata.state.brokers.get(self.me)
        if mine is None or mine.session != self.member.session:
            return "the cluster has ended the session of this broker, which joins again"
        return ""

    async def close(self) -> None:
        await self._socket.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._has_started:
            await self.member.stop()
        await self.host.stop()
        await self._coordinator.close()

    # ------------------------------------------------------------ parts

    def _addresses(self) -> Addresses:
        peers = self._brokers[self.me]
        host = host_of(peers)
        grpc, amqp = (self._settings.address(listener) for listener in ("grpc", "amqp"))
        return Addresses(peers, _reachable(grpc, host), _reachable(amqp, host))

    async def _end_restored(self) -> None:
        """End the sessions that the backup has: those boots are gone, and what ended with them is deleted."""
        for broker, known in list(self.metadata.state.brokers.items()):
            if known.session and known.boot != self.host.me.boot:
                await self.metadata.submit(EndSession(broker, known.boot))
        await asyncio.to_thread(forget_restored, self._directory)

    async def _check_added(self) -> None:
        """Raise StartError for a broker that a cluster which has begun does not know, as one that was removed."""
        while True:
            try:
                state = await self.member.asker.latest()
            except NotLeaderError:
                await asyncio.sleep(JOIN_S)
                continue
            if state.has_begun and self.me not in state.brokers:
                way_out = "let it join with `penstock cluster add`, asked of another broker, and start it again"
                raise StartError(f"broker '{self.me}' is not of cluster '{self._settings.cluster}'; {way_out}")
            return

    async def _first_beat(self) -> None:
        while True:
            try:
                return await self._coordinator.beat(self.me, self.host.me.boot)
            except FaultError as fault:
                _log.warning("no beat", reason=str(fault))
                await asyncio.sleep(LOOK_S)

    async def _say_waiting(self) -> None:
        while True:
            await asyncio.sleep(WAITING_S)
            way_out = (
                "start more brokers; if this one is new in a cluster that runs: `penstock cluster add`; "
                "if no broker is left that is in sync: `penstock cluster recover --metadata`"
            )
            _log.warning(f"waiting for a leader of the metadata; {way_out}")

    async def _end_if_replaced(self) -> None:
        """Stop this broker when the metadata was recovered, and this one's is of no use any more."""
        reason = await self._recovery.until_replaced()
        _log.error(f"stopping: {reason}; start this broker again")
        self._end()

    def _hear_session(self, name: str, is_alive: bool) -> None:
        (self._silent.discard if is_alive else self._silent.add)(name)
        broker = BrokerName(name)
        self.host.session(broker, is_alive=is_alive)
        known = self.member.state.brokers.get(broker)
        if is_alive:
            self._ended.pop(broker, None)
        elif known is not None:
            self._ended[broker] = known.boot

    async def _keep_sessions(self) -> None:
        """End the sessions of brokers that are gone, if this broker leads; join again if its own was ended.

        It also stops a broker that cannot follow the metadata, so that others serve what it leads.
        """
        while True:
            await asyncio.sleep(LOOK_S)
            reason = self._reason_to_stop()
            if reason:
                _log.error(f"stopping: {reason}")
                return self._end()
            try:
                mine = self.metadata.state.brokers.get(self.me)
                is_ended = mine is not None and mine.boot == self.host.me.boot and mine.session != self.member.session
                if is_ended or self.member.needs_join:
                    _log.warning("the session was ended by the cluster; joining again")
                    await self.member.join(self._addresses())
                for broker, boot in list(self._ended.items()) if self.member.leads else ():
                    known = self.metadata.state.brokers.get(broker)
                    if known is not None and known.session and known.boot == boot:
                        await self.metadata.submit(EndSession(broker, boot))
                        _log.info("session ended", broker=broker)
            except (FaultError, RefusedError) as error:
                _log.warning("sessions not kept", reason=str(error))

    def _reason_to_stop(self) -> str:
        """Return why this broker must serve no longer: its users and bindings would be those of the past."""
        if self._members.is_removed():
            return "this broker was removed from the cluster; add it again before you start it"
        if self.metadata.is_replaced:
            return "the metadata was replaced by a copy of another broker's; start this broker again"
        stopped = self.member.stopped
        if stopped is None:
            return ""
        return f"the metadata of the cluster is not applied any more: {stopped.cause}; start this broker again"

    async def _keep_secrets(self) -> None:
        """Use the secrets of the file whenever it changes. One that cannot be used changes nothing."""
        problem = ""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                found = await asyncio.to_thread(read_secrets, self._secret_file)
            except StartError as error:
                if str(error) != problem:
                    problem = str(error)
                    _log.warning("the file of secrets cannot be used; the secrets stay as they were", reason=problem)
                continue
            problem = ""
            if found != self._secrets:
                self._secrets = found
                self.host.set_secrets(found)
                _log.info("secrets of the cluster changed", count=len(found))

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(spawn(work, name=f"cluster {name}"))


def cluster_id(name: str) -> bytes:
    """Return the id of a cluster, which all its brokers draw from its name."""
    return hashlib.sha256(f"cluster {name}".encode()).digest()[:16]


def read_secrets(path: Path) -> list[str]:
    """Return the secrets of a file, one a line. Blocks. Raises StartError."""
    found = [line.strip() for line in _read(path, "cluster_secret_file").splitlines() if line.strip()]
    if not found or any(len(secret) < SECRET_BYTES_MIN for secret in found):
        rule = f"needs a secret of at least {SECRET_BYTES_MIN} characters on each line"
        raise StartError(f"cluster_secret_file {path} {rule}; write one, for example from `openssl rand -hex 32`")
    return found


def _listen(settings: Settings, cluster: bytes, boot: int, known: list[str]) -> ClusterNode:
    start = partial(
        ClusterNode,
        number=broker_number(settings.cluster_broker),
        cluster=cluster,
        boot=boot,
        address=settings.cluster_peers,
        secrets=known,
        frame_bytes_max=FRAME_BYTES_MAX,
        tls=_tls(settings),
        scrub_every_s=settings.cluster_scrub_hours * SECONDS_OF_HOUR or None,
    )
    try:
        return start()
    except OSError as error:
        way_out = "choose another with cluster_peers"
        raise StartError(f"cannot listen for brokers on {settings.cluster_peers}: {error}; {way_out}") from error


def _tls(settings: Settings) -> PeerTls | None:
    certificate, key, authority = settings.cluster_tls_certificate, settings.cluster_tls_key, settings.cluster_tls_ca
    if certificate is None or key is None or authority is None:
        return None
    return PeerTls(
        authority=_read(authority, "cluster_tls_ca"),
        certificate=_read(certificate, "cluster_tls_certificate"),
        key=_read(key, "cluster_tls_key"),
        server_name=settings.cluster_tls_name or None,
    )


def _read(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"{setting} {path} cannot be read: {error}") from error


def _reachable(address: Address | None, host: str) -> str:
    """Return where others reach a listener: at the host of this broker, if it listens at all of its addresses."""
    if address is None or not address.port:
        return ""
    is_any = address.host in ("0.0.0.0", "::")
    return str(Address(host, address.port) if is_any else address)
