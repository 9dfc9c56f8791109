"""A listener, calls and a node for the tests of the gRPC front end, over vhosts that live in memory."""

import asyncio
import base64
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from penstock.frontends.amqp import AmqpProtocol
from penstock.frontends.grpc import GrpcProtocol
from penstock.frontends.native import Decider, NativeFrontend
from penstock.identity import Allowance, Identity, Permission, Tag, TopicPermission, User, Users
from penstock.kit.peers import NOWHERE, Source
from penstock.model.errors import FaultError, NotAuthenticatedError, NotFoundError, Thing
from penstock.model.limits import NO_LIMITS, Limits
from penstock.model.names import ConnectionId, VhostName
from penstock.native import Event, OpenConsumer, Question, StreamPartition, UnaryCall
from penstock.services import Parts, Services, build
from penstock.services.log_ins import LogIns
from penstock.services.ports import (
    BackupPart,
    BegunBackup,
    Corruption,
    GroupTotals,
    NodeState,
    PartitionTotals,
    Recovery,
    ShardTotals,
    SignIn,
    StreamTotals,
    VhostTotals,
    WrittenBackup,
)
from penstock.vhost import Vhosts
from support.vhost_fakes import FakeStorage, Tasks

EVERYTHING = Permission.compile(".*", ".*", ".*")
TOKEN = "0123456789abcdefghijkl"


class FakeClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.ms = 1_000_000

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1_000


@dataclass(frozen=True)
class Bearer:
    """A user for a while."""

    user: User
    expires_at_ms: int

    @property
    def name(self) -> str:
        return self.user.name

    @property
    def tags(self) -> tuple[Tag, ...]:
        return self.user.tags

    @property
    def is_administrator(self) -> bool:
        return self.user.is_administrator

    def sees_vhost(self, vhost: str) -> bool:
        return self.user.sees_vhost(vhost)

    def allowance(self, vhost: str) -> Allowance | None:
        return self.user.allowance(vhost)


class FakeAccounts:
    """Passwords are the names of users."""

    def __init__(self) -> None:
        users = Users().put("admin", ["administrator"], "").set_permission("admin", "/", EVERYTHING)
        users = users.put("reader", [], "").set_permission("reader", "/", Permission.compile("", "", "open.*"))
        self._users = users.put("outsider", [], "")
        # Each token has a key of its own here: the time at which it expires.
        self.removed_keys: set[int] = set()
        self.refresh_count = 0
        self.keys_removed: Callable[[], None] = lambda: None

    async def log_in(self, name: str, password: str, *, is_loopback: bool, source: Source = NOWHERE) -> Identity:
        if "." in password:
            return await self.log_in_by_token(password, is_loopback=is_loopback)
        user = self._users.find(name)
        if user is None or password != name:
            raise NotAuthenticatedError(name)
        return user

    async def log_in_by_certificate(self, certificate: bytes, *, is_loopback: bool) -> Identity:
        raise NotAuthenticatedError("", "there are no certificates here")

    async def log_in_by_token(self, token: str, *, is_loopback: bool) -> Identity:
        """Log in by a token: a user's name and its expiry, separated by a dot."""
        name, _, expires_at_ms = token.partition(".")
        if self._users.find(name) is None:
            raise NotAuthenticatedError("")
        return Bearer(self._users.get(name), int(expires_at_ms))

    def check_open(self, identity: Identity) -> None:
        if identity.expires_at_ms in self.removed_keys:
            raise NotAuthenticatedError(identity.name)

    def refresh_keys(self) -> None:
        self.refresh_count += 1

    def watch_keys(self, removed: Callable[[], None]) -> None:
        self.keys_removed = removed

    def find(self, name: str) -> User | None:
        return self._users.find(name)

    @property
    def passwords(self) -> Self:
        return self

    async def has_password(self, user: User, password: str) -> bool:
        return user.name == password

    def accept_previous(self, user: User, seconds: float) -> None:
        """Do nothing: names do not change."""

    def users(self) -> list[User]:
        return self._users.all()

    async def put_user(
        self,
        name: str,
        password: str | None,
        tags: Sequence[str] | None,
        *,
        force: bool = False,
        is_random: bool = False,
    ) -> bool:
        is_new = self._users.find(name) is None
        self._users = self._users.put(name, tags, None, force=force)
        return is_new

    async def delete_user(
        self, name: str, *, force: bool = False, forget: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        self._users = self._users.delete(name, force=force)
        if forget is not None:
            await forget(name)

    async def set_permission(self, name: str, vhost: str, permission: Permission) -> None:
        self._users = self._users.set_permission(name, vhost, permission)

    async def delete_permission(self, name: str, vhost: str) -> None:
        self._users = self._users.delete_permission(name, vhost)

    async def set_topic(self, name: str, vhost: str, exchange: str, topic: TopicPermission) -> None:
        self._users = self._users.set_topic(name, vhost, exchange, topic)

    async def delete_topics(self, name: str, vhost: str, exchange: str | None) -> None:
        self._users = self._users.delete_topics(name, vhost, exchange)


class FakeNode:
    """Figures that are easy to recognise."""

    def state(self) -> NodeState:
        return NodeState(
            "1.2.3",
            "node-1",
            "/secret/data",
            12.0,
            3.0,
            40,
            {"grpc": "h:1"},
            Recovery(ms=1.5, records=7),
            "some-id",
            2,
            {"server.crt": 1_800_000_000.0},
        )

    def corruptions(self) -> list[Corruption]:
        return [Corruption("/", "msgs.0000000003", 97, ("jobs",), 2)]

    def metrics(self) -> dict[str, float]:
        return {"published_total": 11.0, "connections": 2.0, "syncs_total": 5.0}

    def vhost_totals(self) -> list[VhostTotals]:
        odd = VhostTotals('odd "one"', 1, 1, 0, (ShardTotals(1), ShardTotals(0, 2)), lock_wait_seconds=0.25)
        return [VhostTotals("/", 3, 20, 4, lock_wait_seconds=0.5), odd]

    def stream_totals(self) -> StreamTotals:
        partitions = [PartitionTotals("/", "clicks-0", 5, 9, 400, 2)]
        return StreamTotals(partitions, [GroupTotals("/", "clicks-0", "billing", 3)], 7, 1)

    def reason_not_ready(self) -> str:
        return ""

    def reason_not_live(self) -> str:
        return "a disk failed"


class FakeUsers:
    """No users in definitions."""

    def export_users(self) -> list[dict[str, object]]:
        return []

    def export_permissions(self) -> list[dict[str, object]]:
        return []

    def export_topics(self) -> list[dict[str, object]]:
        return []

    def check(
        self,
        users: list[dict[str, object]],
        permissions: list[dict[str, object]],
        topics: list[dict[str, object]],
    ) -> list[str]:
        return []

    async def import_topics(self, topics: list[dict[str, object]]) -> int:
        return len(topics)

    async def import_users(self, users: list[dict[str, object]]) -> int:
        return len(users)

    async def import_permissions(self, permissions: list[dict[str, object]]) -> int:
        return len(permissions)


class FakeBackups:
    """Writes nothing."""

    async def write(self, directory: str) -> WrittenBackup:
        return WrittenBackup(vhost_count=1, bytes=100)

    async def begin(self, owner: str, connection: ConnectionId, request_id: str) -> BegunBackup:
        return BegunBackup(f"{owner} {connection}", bytes=4, vhost_count=1, data_id="", version="1")

    async def read(self, owner: str, backup: str, offset: int) -> BackupPart:
        if not backup.startswith(owner):
            raise NotFoundError(Thing("backup", backup))
        return BackupPart(b"four"[offset:], is_last=True, sha256="")

    async def end(self, owner: str, backup: str) -> None:
        pass

    def connection_ended(self, number: ConnectionId) -> None:
        pass


@dataclass
class FakeCall:
    """A call of the native listener, of a unary method where no other request is given; `result` is its answer."""

    asked: Question | Event | None = None
    protocol: str = "grpc"
    method: str = ""
    payload: bytes = b""
    authorization: str = ""
    certificate: bytes = b""
    peer: str = "127.0.0.1:9"
    connection: int = 1
    again: bool = False
    by_key: bool = False
    user: str = ""
    result: asyncio.Future[tuple[object, ...]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def request(self) -> Question | Event:
        return self.asked or UnaryCall(method=self.method, payload=self.payload)

    def answer(self, payload: bytes) -> None:
        self.result.set_result(("answer", payload))

    def describe(self, vhost: str, user: str, partitions: Sequence[StreamPartition]) -> None:
        del user
        self.result.set_result(("streams", vhost, *partitions))

    def found_leader(self, leader: str | None = None) -> None:
        self.result.set_result(("leader", leader))

    def permit_keys(self, permitted: Sequence[bool]) -> None:
        self.result.set_result(("keys", *permitted))

    def admit_stage(self, vhost: str, queue_id: int, user: str, *, exchange: str, routing_key: str) -> None:
        self.result.set_result(("stage", vhost, queue_id, user, exchange, routing_key))

    def admit(
        self, vhost: str, queue_id: int = 0, user: str = "", by_key: bool = False, replica: object = None
    ) -> None:
        assert replica is None, "the only broker has no replicas"
        self.user, self.by_key = user, by_key
        self.result.set_result(("admit", vhost, queue_id))

    def changed(self, name: str, message_count: int = 0, consumer_count: int = 0) -> None:
        self.result.set_result(("changed", name, message_count, consumer_count))

    def refuse_kind(self, kind: str, message: str, details: bytes = b"") -> None:
        self.result.set_result(("refuse", kind, message, details))

    def refuse(self, code: int, message: str, details: bytes = b"") -> None:
        self.result.set_result(("refuse", code, message, details))


class FakeListener:
    """Waiting calls make a pipe readable, as the native listener does with an eventfd."""

    def __init__(self) -> None:
        self.wake_fd, self._writing = os.pipe()
        os.set_blocking(self.wake_fd, False)
        self._waiting: list[FakeCall] = []
        self.forgotten: list[str | None] = []
        self.rechecks: list[tuple[str | None, str | None]] = []
        self.rechecked: list[int] = []
        self.quotas: list[tuple[str, bool, dict[str, int]]] = []
        self.open_consumers: list[OpenConsumer] = []
        self.closed: list[int] = []

    def put(self, *calls: FakeCall) -> None:
        self._waiting += calls
        os.write(self._writing, b"x")

    def take(self) -> list[FakeCall]:
        with contextlib.suppress(BlockingIOError):
            os.read(self.wake_fd, 4096)
        taken, self._waiting = self._waiting, []
        return taken

    @property
    def forget_count(self) -> int:
        return len(self.forgotten)

    @property
    def recheck_count(self) -> int:
        return len(self.rechecks)

    def forget(self, vhost: str | None) -> None:
        self.forgotten.append(vhost)

    def recheck(self, user: str | None, vhost: str | None) -> None:
        self.rechecks.append((user, vhost))

    def recheck_connection(self, connection: int) -> None:
        self.rechecked.append(connection)

    def consumers(self) -> list[OpenConsumer]:
        return self.open_consumers

    def close_connection(self, connection: int, /) -> bool:
        self.closed.append(connection)
        return True

    def set_quota(self, name: str, is_user: bool, limits: dict[str, int]) -> None:
        self.quotas.append((name, is_user, limits))

    def close(self) -> None:
        os.close(self.wake_fd)
        os.close(self._writing)


def basic(user: str, password: str | None = None) -> str:
    return "Basic " + base64.b64encode(f"{user}:{user if password is None else password}".encode()).decode()


class FakeUserLimits:
    """Limits of users, and a disk that may refuse to forget them."""

    def __init__(self) -> None:
        self.limits: dict[str, Limits] = {}
        self.fault: FaultError | None = None

    def all(self) -> Mapping[str, Limits]:
        return self.limits

    def find(self, user: str) -> Limits:
        return self.limits.get(user, NO_LIMITS)

    async def set(self, user: str, limits: Limits) -> None:
        self.limits[user] = limits

    async def forget(self, user: str) -> None:
        if self.fault is not None:
            raise self.fault
        self.limits.pop(user, None)


class World:
    """A front end with one vhost, "/"."""

    def __init__(self) -> None:
        self.listener = FakeListener()
        self.accounts = FakeAccounts()
        self.tasks = Tasks()
        self.storage = FakeStorage()
        self.vhosts = Vhosts(self.storage, self.tasks.spawn, lambda: TOKEN)
        self.clock = FakeClock()
        self.timers: list[float] = []
        self.due: list[Callable[[], None]] = []
        self.user_limits = FakeUserLimits()
        self.log_ins = LogIns(lambda _seconds, _call: None)
        self.services = self.built()
        protocols: dict[str, Decider] = {"grpc": GrpcProtocol(self.services), "amqp": AmqpProtocol(self.services)}
        self.frontend = NativeFrontend(self.listener, self.services, protocols)

    def built(self, sign_in: SignIn | None = None) -> Services:
        parts = Parts(
            vhosts=self.vhosts,
            accounts=self.accounts,
            user_limits=self.user_limits,
            definitions_users=FakeUsers(),
            backups=FakeBackups(),
            node=FakeNode(),
            sign_in=sign_in or self.accounts,
            log_ins=self.log_ins,
            clock=self.clock,
            later=self._later,
        )
        return build(parts)

    def _later(self, seconds: float, look: Callable[[], None]) -> asyncio.TimerHandle:
        self.timers.append(seconds)
        self.due.append(look)
        return asyncio.get_running_loop().call_later(3_600, lambda: None)

    async def ask(self, call: FakeCall) -> tuple[object, ...]:
        self.listener.put(call)
        return await call.result


def play(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def run() -> None:
        world = World()
        await world.vhosts.make(VhostName("/"))
        world.frontend.start()
        try:
            await scenario(world)
        finally:
            world.frontend.stop()
            world.listener.close()
            await world.tasks.end()

    asyncio.run(run())
