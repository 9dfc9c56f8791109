"""Starts a broker and stops it: the one place that knows all packages.

The order matters. The launcher takes the lock, then reads all files that can be invalid, then opens the logs and syncs
the ranges that they must skip after a power failure. Only then does it clear the state of the last run, and only then
does it start listeners for messages. A stop does the same in reverse, and writes `clean` only when everything is on the
disk.
"""

import asyncio
import errno
import re
import secrets
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Self

from penstock.archive.errors import ArchiveError
from penstock.frontends.amqp import AmqpProtocol
from penstock.frontends.grpc import GrpcProtocol
from penstock.frontends.http import HttpFrontend, MetricsPage
from penstock.frontends.native import Decider, NativeFrontend, NativeListener
from penstock.identity.http_client import HttpClient
from penstock.kit.clock import SystemClock
from penstock.kit.logging import configure, logger
from penstock.kit.settings import CALLS_MAX
from penstock.kit.tasks import spawn
from penstock.model.names import DEFAULT_VHOST, SERVER_NAMED_RANDOM_LENGTH
from penstock.native import Engine, Server, Tls, version
from penstock.node.abandoned_stages import AbandonedStages
from penstock.node.backends import make_sign_in
from penstock.node.buffers import buffer_bytes
from penstock.node.config import Settings, StartError
from penstock.node.files import connections_that_fit
from penstock.node.first_user import choose_first_user, is_beyond_loopback
from penstock.node.notices import listen
from penstock.node.password_file import PasswordFile
from penstock.node.reloading import Reloading
from penstock.node.state import BrokerState, Phase
from penstock.node.tls import TlsFiles, tls_files
from penstock.node.vhosts_storage import VhostsStorage
from penstock.services import Parts, Services, build
from penstock.services.accounts import Accounts
from penstock.services.archives import Archives, NoArchives
from penstock.services.backups import Backups, MetadataSource
from penstock.services.definitions_users import DefinitionsUsers
from penstock.services.events import Events
from penstock.services.log_ins import LogIns
from penstock.services.ports import Cluster, Recovery
from penstock.services.principal import CatchUp
from penstock.services.user_limits import LimitsOfUsers
from penstock.storage import DataDirectory
from penstock.storage.deletions import complete_deletions
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.vhosts import Vhosts

if TYPE_CHECKING:
    from penstock.node.in_cluster.accounts import ClusterAccounts, ClusterLimits

_log = logger("node")
_CANNOT_BIND = {
    errno.EADDRINUSE: "another process listens there",
    errno.EACCES: "permission denied",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}


class Broker:
    """Serves while entered. Leaving it without `stop` lets go of everything and leaves no `clean` behind."""

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Settings] | None = None,
        log_lines_dropped: Callable[[], int] = int,
        stop_asked: asyncio.Event | None = None,
    ) -> None:
        """`load` reads the settings again; without it they stay as they are.

        `log_lines_dropped` counts lines of the log. A start that waits for other brokers ends when `stop_asked` is set.
        """
        self._settings = settings
        self._load = load
        self._stop_asked = stop_asked or asyncio.Event()
        self._undo = AsyncExitStack()
        self._is_orderly = False
        self.was_clean = False
        self.has_failed = False
        """Whether it stops by itself, because it must not serve any longer."""
        self.password_file: Path | None = None
        """The file with the password of a new broker's administrator, when it was generated at this start."""
        self.services: Services
        """Set by the start, before there is any listener for messages."""
        self._tls: TlsFiles | None = None
        self._accounts: Accounts | ClusterAccounts
        self._limits: LimitsOfUsers | ClusterLimits
        self._vhosts: AllVhosts
        self._events = Events()
        self._catch_up: CatchUp | None = None
        self._cluster: Cluster | None = None
        self._relay_clients: Callable[[Server], None] | None = None
        self._metadata: MetadataSource | None = None
        self._keeps_administrator: Callable[[], bool] = lambda: True
        data_dir = str(settings.data_dir.absolute())
        self.state = BrokerState(version, socket.gethostname(), data_dir, SystemClock())
        self.state.also_count(lambda: {"log_lines_dropped_total": log_lines_dropped()})

    async def __aenter__(self) -> Self:
        try:
            await self._start()
        except BaseException:
            await self._undo.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._undo.aclose()

    def has_default_user(self) -> bool:
        return any(user.name == self._settings.default_user for user in self._accounts.users())

    async def _start(self) -> None:
        directory = DataDirectory.open(self._settings.data_dir)
        self._directory = directory
        self.state.data_id = directory.data_id
        self._undo.callback(directory.close)
        self._undo.push_async_exit(self._mark_clean)
        directory.check_whole()
        for deletion in await asyncio.to_thread(complete_deletions, directory):
            _log.info("deletion completed", kind=deletion.kind.value, name=deletion.name)
        self._tls = tls_files(self._settings)
        tls = await asyncio.to_thread(self._tls.load) if self._tls is not None else None
        if self._tls is not None:
            self.state.expiries = self._tls.expiries
        await self._start_http()
        self._archives = self._open_archives()
        await (self._open_cluster(directory) if self._settings.cluster else self._open_data(directory))
        self.state.data_format = directory.format
        self.services = self._build_services(directory)
        await self._keep_administrator()
        await self._start_grpc(tls)
        if self._load is not None:
            reloading = Reloading(self._settings, self._load, self._take)
            self._undo.callback(spawn(reloading.watch(), name="settings").cancel)
        if self._settings.producer_memory_days:
            memory_ms = int(self._settings.producer_memory_days * 86_400_000)
            abandoned = AbandonedStages(self._vhosts, SystemClock(), memory_ms)
            self._undo.callback(spawn(abandoned.watch(), name="abandoned stages").cancel)
        for name in self._settings.unsupported_listeners():
            _log.warning("this listener is not supported yet", setting=name)
        self.state.move(Phase.READY)
        if self._server is not None:
            await asyncio.to_thread(self._server.serving, True)
        _log.info("ready", version=version, seconds=round(self.state.uptime_seconds, 3), **self.state.listeners)

    async def _open_data(self, directory: DataDirectory) -> None:
        settings = self._settings
        if directory.is_of_cluster:
            raise StartError(f"{directory.path} is the data of a broker in a cluster; set cluster, or name another one")
        first = await asyncio.to_thread(choose_first_user, settings, directory.users_file)
        self.password_file = first.password_file
        limits = self._limits = await asyncio.to_thread(LimitsOfUsers.open, directory.user_limits_file)
        accounts = self._accounts = await asyncio.to_thread(
            Accounts.open, directory.users_file, first.name, first.password, limits, directory.deletions
        )
        self._undo.callback(accounts.close)
        self._undo.push_async_callback(accounts.settled)
        self._undo.push_async_callback(limits.drained)
        self._make_engine()
        storage = VhostsStorage(directory, self._engine, accounts.forget_vhost)
        self._undo.push_async_callback(storage.close)
        vhosts = self._vhosts = Vhosts(storage, spawn, _make_token)
        self._undo.push_async_callback(vhosts.close)
        await vhosts.open_all()
        if not directory.vhosts_file.exists():
            await vhosts.make(DEFAULT_VHOST, settings.default_vhost_shards)
        accounts.know_vhosts(vhosts.by_name().__contains__)
        await asyncio.to_thread(directory.begin, vhosts.names())
        await accounts.complete_deletions(vhosts.delete_producers_of)
        self.state.opened(self._engine, vhosts, storage.recovery(), storage.corruptions)
        self._undo.callback(listen(self._engine, self.state.reason_not_live).cancel)

    async def _open_cluster(self, directory: DataDirectory) -> None:
        from penstock.node.in_cluster.parts import Stopping, open_cluster

        self._make_engine()
        stopping = Stopping(self._stop_asked, self._end)
        cluster = await open_cluster(self._settings, directory, self._engine, _make_token, self._undo, stopping)
        self._accounts, self._limits, self._vhosts = cluster.accounts, cluster.limits, cluster.vhosts
        self._events, self._catch_up = cluster.events, cluster.metadata.catch_up
        self._cluster, self._metadata = cluster.shards, cluster.backups
        self._keeps_administrator = lambda: cluster.membership.member.leads
        self._relay_clients = cluster.relay_clients
        self.state.also_count(cluster.membership.host.relays)
        self.state.also_count(cluster.comparisons.counts)
        self.state.opened(self._engine, cluster.vhosts, Recovery())
        self.state.also_ready(cluster.membership.reason_not_ready)
        self._undo.callback(listen(self._engine, self.state.reason_not_live).cancel)

    def _make_engine(self) -> None:
        settings = self._settings
        self._engine = Engine(
            segment_bytes_min=settings.segment_bytes_min,
            segment_bytes_max=settings.segment_bytes_max,
            segment_idle_ms=int(settings.segment_idle_seconds * 1_000),
            disk_free_bytes_min=settings.disk_free_bytes_min,
            compaction_bytes_per_second=settings.compaction_bytes_per_second,
            producer_memory_ms=int(settings.producer_memory_days * 86_400_000),
            producers_of_user_max=settings.producers_per_user_max,
        )
        self._undo.push_async_callback(self._close_engine)

    async def _keep_administrator(self) -> None:
        """Give the default user the password of its file, now and whenever the file changes.

        In a cluster one broker does so at a time: files that change one after another would undo each other's password.
        """
        settings = self._settings
        if settings.default_password_file is None:
            return

        async def keep(password: str) -> None:
            if not self._keeps_administrator():
                return
            seconds = settings.default_password_grace_seconds
            await self.services.administrator.keep(settings.default_user, password, seconds)

        file = PasswordFile(settings.default_password_file, keep)
        await file.look()
        self._undo.callback(spawn(file.watch(), name="password file").cancel)

    def _build_services(self, directory: DataDirectory) -> Services:
        clock, log_ins = SystemClock(), LogIns()
        self.state.also_count(log_ins.counts)
        http_client = HttpClient(self._settings.auth_timeout_seconds)
        self._undo.push_async_callback(http_client.close)
        backups = Backups(directory, self._vhosts, clock, metadata=self._metadata)
        self._undo.push_async_callback(backups.close)
        parts = Parts(
            vhosts=self._vhosts,
            accounts=self._accounts,
            user_limits=self._limits,
            definitions_users=DefinitionsUsers(self._accounts, self._limits),
            backups=backups,
            node=self.state,
            sign_in=make_sign_in(self._settings, self._accounts, http_client, clock),
            log_ins=log_ins,
            clock=clock,
            later=asyncio.get_running_loop().call_later,
            archives=self._archives,
            events=self._events,
            catch_up=self._catch_up,
            cluster=self._cluster,
        )
        return build(parts)

    async def _start_http(self) -> None:
        address = self._settings.address("metrics")
        if address is None:
            return
        settings = self._settings
        needs_certificate = settings.metrics_tls and settings.tls_client_auth == "required"
        page = MetricsPage(self.state, settings.metrics_names, settings.metrics_token.get_secret_value())
        frontend = HttpFrontend(self.state, self.state.reason_not_started, page, needs_certificate=needs_certificate)
        try:
            context = self._tls.context if self._tls is not None and settings.metrics_tls else None
            await frontend.start(address.host, address.port, context)
        except OSError as error:
            raise _cannot_listen("metrics", str(address), error) from error
        self._undo.push_async_callback(frontend.stop)
        self.state.listeners["metrics"] = frontend.address

    async def _start_grpc(self, tls: Tls | None) -> None:
        self._server: Server | None = None
        address, amqp, web = (self._settings.address(listener) for listener in ("grpc", "amqp", "amqp_ws"))
        if address is None:
            if amqp or web or self._settings.amqp_socket:
                raise StartError("the AMQP listeners need the one for gRPC; set grpc, or amqp and amqp_ws to `off`")
            return
        try:
            server = Server(
                self._engine,
                address=str(address),
                threads=self._settings.threads,
                message_bytes_max=self._settings.message_bytes_max,
                buffer_bytes_max=self._settings.buffer_bytes_max or buffer_bytes(self._settings.message_bytes_max),
                descriptors=files("penstock.v1").joinpath("descriptors.binpb").read_bytes(),
                calls_max=CALLS_MAX,
                connections_max=self._settings.connections_max or connections_that_fit(),
                streams_max=self._settings.streams_per_connection_max,
                first_request_ms=int(self._settings.first_request_seconds * 1_000),
                proxies=self._settings.proxies,
                tls=tls,
                amqp=None if amqp is None else str(amqp),
                amqp_socket=self._settings.amqp_socket,
                amqp_web=None if web is None else str(web),
                amqp_web_origins=self._settings.web_origins,
            )
        except OSError as error:
            raise _cannot_serve(str(address), error) from error
        self._server = server
        self.state.also_count(server.metrics)
        if self._relay_clients is not None:
            self._relay_clients(server)
        if tls is None and is_beyond_loopback(self._settings):
            _log.warning("credentials and messages are sent in clear text: set tls_certificate", grpc=server.address)
        if self._tls is not None:
            self._undo.callback(spawn(self._tls.watch(server.set_tls), name="certificates").cancel)
        protocols: dict[str, Decider] = {"grpc": GrpcProtocol(self.services), "amqp": AmqpProtocol(self.services)}
        frontend = NativeFrontend(NativeListener(server), self.services, protocols)
        frontend.start()
        self._undo.callback(frontend.stop)
        self._undo.push_async_callback(self._stop_server, server)
        self.state.listeners["grpc"] = server.address
        if server.amqp_address is not None:
            self.state.listeners["amqp"] = server.amqp_address
        if server.amqp_web_address is not None:
            self.state.listeners["amqp_ws"] = server.amqp_web_address
        if self._settings.amqp_socket is not None:
            self.state.listeners["amqp_socket"] = str(self._settings.amqp_socket)

    def _open_archives(self) -> Archives | NoArchives:
        if self._settings.archive_dir is None:
            return NoArchives()
        try:
            archives = Archives(self._settings.archive_dir.absolute())
        except ArchiveError as error:
            raise StartError(str(error)) from error
        self._undo.callback(archives.close)
        return archives

    async def stop(self) -> None:
        """Begins an orderly stop, which leaving completes: streams end, everything goes to the disk, then `clean`."""
        self.state.move(Phase.STOPPING)
        self._is_orderly = not any(vhost.fault for vhost in self._vhosts.all())
        if self._server is not None:
            await asyncio.to_thread(self._server.serving, False)

    def _end(self) -> None:
        self.has_failed = True
        self._stop_asked.set()

    async def _stop_server(self, server: Server) -> None:
        await asyncio.to_thread(server.stop, int(self._settings.drain_seconds * 1_000))

    def _take(self, settings: Settings) -> None:
        """Take over settings that may change while the broker runs."""
        self._settings = settings
        configure(settings.log_level, settings.log_format)

    async def _close_engine(self) -> None:
        await asyncio.to_thread(self._engine.close)

    async def _mark_clean(self, kind: type[BaseException] | None, *_: object) -> None:
        """Mark the state as clean once everything but the lock is released.

        `kind` is set if a step of the stop failed.
        """
        if self._is_orderly and kind is None:
            await asyncio.to_thread(self._directory.mark_clean)
            self.was_clean = True
            _log.info("stopped", seconds=round(self.state.uptime_seconds, 3))


def _make_token() -> str:
    """16 random bytes are 22 URL-safe characters."""
    token = secrets.token_urlsafe(16)
    assert len(token) == SERVER_NAMED_RANDOM_LENGTH
    return token


def _cannot_serve(grpc: str, error: OSError) -> StartError:
    """Return the error of the native listeners: those of AMQP put their setting and place before it."""
    found = re.fullmatch(r"(amqp\w*) on (.+): ([^:]+)", str(error))
    return _cannot_listen(found[1], found[2], OSError(found[3])) if found else _cannot_listen("grpc", grpc, error)


def _cannot_listen(listener: str, address: str, error: OSError) -> StartError:
    found = re.search(r"os error ([0-9]+)", str(error))  # the native listener's errors carry the number in the text
    number = error.errno or (int(found[1]) if found else 0)
    reason = _CANNOT_BIND.get(number, error.strerror or str(error))
    if listener == "amqp_socket":
        return StartError(f"cannot listen for amqp on {address}: {reason}; choose another path for amqp_socket")
    flag = f"--{listener.replace('_', '-')}"
    return StartError(f"cannot listen for {listener} on {address}: {reason}; choose another with {flag} or `off`")
