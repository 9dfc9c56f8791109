"""Log-ins: the back end that is asked and its input, and the counts and log lines."""

import asyncio

import pytest
import structlog

from penstock.identity import User
from penstock.kit.peers import Source
from penstock.model.errors import BusyError, NotAuthenticatedError, PreconditionFailedError, StorageError, Thing
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, QueueName
from penstock.services import Certificate, DeclareQueue, NoCredentials, Password, StageTarget, Token
from support.grpc_fakes import World, play

USER = User("anna", "")


class Recording:
    """A sign-in that notes what it was asked."""

    def __init__(self):
        self.asked = []

    async def log_in(self, name, password, *, is_loopback, source):
        assert source == Source("127.0.0.1" if is_loopback else "192.0.2.7", 7)
        self.asked.append(("password", name, password, is_loopback))
        return USER

    async def log_in_by_token(self, token, *, is_loopback):
        self.asked.append(("token", token, is_loopback))
        return USER

    async def log_in_by_certificate(self, certificate, *, is_loopback):
        self.asked.append(("certificate", certificate, is_loopback))
        return USER

    def watch_keys(self, removed):
        del removed

    def refresh_keys(self):
        """Nothing to refresh."""


@pytest.mark.parametrize(
    ("credentials", "asked"),
    [
        (Password("anna", "secret"), ("password", "anna", "secret")),
        (Token("a.b.c"), ("token", "a.b.c")),
        (Certificate(b"DER"), ("certificate", b"DER")),
    ],
)
@pytest.mark.parametrize(("peer", "is_loopback"), [("127.0.0.1:4000", True), ("192.0.2.7:4000", False)])
def test_every_way_to_log_in_hears_whether_the_client_is_on_this_machine(credentials, asked, peer, is_loopback):
    sign_in = Recording()

    async def scenario(world):
        services = world.built(sign_in=sign_in)
        principal = await services.sessions.log_in(credentials, services.connections.open(ConnectionId(7), peer))
        assert principal.name == "anna"

    play(scenario)
    assert sign_in.asked == [(*asked, is_loopback)]


def test_a_log_in_without_credentials_is_refused_and_counted():
    async def scenario(world: World) -> None:
        connection = world.services.connections.open(ConnectionId(7), "192.0.2.7:4000")
        with pytest.raises(NotAuthenticatedError, match="send a token"):
            await world.services.sessions.log_in(NoCredentials("send a token"), connection)
        assert world.log_ins.counts()["log_ins_refused_total"] == 1

    play(scenario)


class Refusing(Recording):
    """A sign-in whose refusals are due later."""

    async def log_in(self, name, password, *, is_loopback, source):
        raise NotAuthenticatedError(name, due=asyncio.get_running_loop().time() + 0.2)


def test_a_refusal_is_answered_when_it_is_due():
    async def scenario(world):
        services = world.built(sign_in=Refusing())
        connection = services.connections.open(ConnectionId(7), "192.0.2.7:4000")
        began = asyncio.get_running_loop().time()
        with pytest.raises(NotAuthenticatedError):
            await services.sessions.log_in(Password("anna", "wrong"), connection)
        assert asyncio.get_running_loop().time() - began >= 0.2

    play(scenario)


class Busy(Recording):
    """A sign-in that has too many checks waiting."""

    async def log_in(self, name, password, *, is_loopback, source):
        raise BusyError(Thing("log-in", "password checks"), "has 256 waiting already")


def test_log_ins_that_cannot_be_decided_are_logged_together():
    """Each wrote two warnings, and advised a restart of the broker."""

    async def scenario(world):
        services = world.built(sign_in=Busy())
        connection = services.connections.open(ConnectionId(7), "192.0.2.7:4000")
        with structlog.testing.capture_logs() as lines:
            for number in range(100):
                with pytest.raises(BusyError):
                    await services.sessions.log_in(Password("anna", str(number)), connection)
        assert [(line["event"], line["count"], line["peer"]) for line in lines] == [
            ("log-ins could not be decided", 1, "192.0.2.7:4000")
        ]
        assert world.log_ins.counts()["log_ins_undecided_total"] == 100

    play(scenario)


def test_the_first_log_in_of_a_user_on_a_connection_is_logged():
    async def scenario(world: World) -> None:
        connection = world.services.connections.open(ConnectionId(7), "192.0.2.7:4000")
        with structlog.testing.capture_logs() as lines:
            for user in ("admin", "admin", "reader"):
                await world.services.sessions.log_in(Password(user, user), connection)
        assert [(line["event"], line["user"], line["connection"]) for line in lines] == [
            ("LogIn", "admin", 7),
            ("LogIn", "reader", 7),
        ]

    play(scenario)


def test_administrators_administer_above_their_limit_of_connections():
    async def scenario(world: World) -> None:
        world.user_limits.limits["admin"] = Limits(connections_max=0)
        connection = world.services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        log_in, admin = world.services.sessions.log_in, Password("admin", "admin")
        with pytest.raises(PreconditionFailedError):
            await log_in(admin, connection)
        assert (await log_in(admin, connection, is_administering=True)).is_administrator

    play(scenario)


def test_a_connection_that_ends_during_its_log_in_is_never_counted():
    """It was counted until a restart: at last its user could not log in any more."""

    async def scenario(world: World) -> None:
        may_end = asyncio.Event()
        log_in = world.accounts.log_in

        async def slowly(name, password, **rest):
            await may_end.wait()
            return await log_in(name, password, **rest)

        world.accounts.log_in = slowly  # type: ignore[method-assign]
        services = world.services
        connection = services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        logging_in = asyncio.create_task(services.sessions.log_in(Password("admin", "admin"), connection))
        await asyncio.sleep(0)
        await services.sessions.end(ConnectionId(7))
        may_end.set()
        principal = await logging_in
        await services.admission.open_publisher(principal, "/")

        limits = await services.limits.get_user_limits(principal, "")
        assert limits.connection_count == 0
        assert (await services.limits.get_vhost_limits(principal, "/")).connection_count == 0

    play(scenario)


def test_a_call_that_is_taken_after_the_end_of_its_connection_is_not_counted():
    async def scenario(world: World) -> None:
        await world.services.sessions.end(ConnectionId(7))
        late = world.services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        principal = await world.services.sessions.log_in(Password("admin", "admin"), late)
        assert (await world.services.limits.get_user_limits(principal, "")).connection_count == 0

    play(scenario)


def test_an_exclusive_queue_that_is_declared_after_the_end_of_its_connection_is_deleted():
    async def scenario(world: World) -> None:
        services, admin = world.services, Password("admin", "admin")
        gone = await services.sessions.log_in(admin, services.connections.open(ConnectionId(7), "127.0.0.1:4000"))
        await services.sessions.end(ConnectionId(7))
        wanted = DeclareQueue(QueueName("mine"), ConnectionId(7), exclusive=True)
        await services.topology.declare_queue(gone, "/", wanted)

        other = await services.sessions.log_in(admin, services.connections.open(ConnectionId(8), "127.0.0.1:4001"))
        assert await services.topology.list_queues(other, "/") == []

    play(scenario)


def test_a_token_of_a_stream_that_opens_after_the_end_of_its_connection_is_not_kept():
    """It was kept until a restart, and a timer looked at it."""

    async def scenario(world: World) -> None:
        services = world.services
        connection = services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        gone = await services.sessions.log_in(Token("admin.9000000"), connection)
        await services.sessions.end(ConnectionId(7))

        await services.admission.open_publisher(gone, "/")
        await services.stages.open_stage(gone, "/", "s", StageTarget(exchange="amq.direct", routing_key="k"))

        assert world.timers == []

    play(scenario)


def test_a_vhost_that_is_made_anew_counts_no_connections_of_the_old_one():
    """Connections that stayed open filled the limit of the new one."""

    async def scenario(world: World) -> None:
        services = world.services
        connection = services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        admin = await services.sessions.log_in(Password("admin", "admin"), connection)
        await services.admission.open_publisher(admin, "/")
        await services.vhosts.delete_vhost(admin, "/")
        await services.vhosts.create_vhost(admin, "/")

        assert (await services.limits.get_vhost_limits(admin, "/")).connection_count == 0
        await services.limits.set_vhost_limits(admin, "/", {"connections_max": 1})
        other = services.connections.open(ConnectionId(8), "127.0.0.1:4001")
        await services.admission.open_publisher(await services.sessions.log_in(Password("admin", "admin"), other), "/")
        await services.sessions.end(ConnectionId(7))
        assert (await services.limits.get_vhost_limits(admin, "/")).connection_count == 1

    play(scenario)


def test_a_vhost_whose_deletion_failed_half_way_counts_no_connections_when_it_is_made_anew():
    """They were forgotten only by a deletion without a fault."""

    async def scenario(world: World) -> None:
        services, really = world.services, world.storage.delete
        connection = services.connections.open(ConnectionId(7), "127.0.0.1:4000")
        admin = await services.sessions.log_in(Password("admin", "admin"), connection)
        await services.admission.open_publisher(admin, "/")

        async def fail(_):
            raise StorageError(Thing("file", "users.json"), "cannot be written", "free space")

        world.storage.delete = fail  # type: ignore[method-assign]
        with pytest.raises(StorageError):
            await services.vhosts.delete_vhost(admin, "/")
        world.storage.delete = really  # type: ignore[method-assign]
        await services.vhosts.create_vhost(admin, "/")

        assert (await services.limits.get_vhost_limits(admin, "/")).connection_count == 0

    play(scenario)


def test_a_user_that_is_made_anew_has_no_connections_of_the_deleted_one():
    """They counted, and the new user could not log in below its limit; it saw them, and could close them."""

    async def scenario(world: World) -> None:
        services = world.services
        old, shared = (services.connections.open(ConnectionId(number), "127.0.0.1:4000") for number in (7, 8))
        admin = await services.sessions.log_in(Password("admin", "admin"), shared)
        for connection in (old, shared):
            await services.sessions.log_in(Password("reader", "reader"), connection)

        await services.users.delete_user(admin, "reader")
        await services.users.put_user(admin, "reader", "reader", [])
        await services.limits.set_user_limits(admin, "reader", {"connections_max": 1})

        assert (await services.limits.get_user_limits(admin, "reader")).connection_count == 0
        new = services.connections.open(ConnectionId(9), "127.0.0.1:4001")
        reader = await services.sessions.log_in(Password("reader", "reader"), new)
        assert [each.number for each in await services.clients.list_connections(reader)] == [9]
        with pytest.raises(PreconditionFailedError):
            await services.sessions.log_in(Password("reader", "reader"), old)
        await services.sessions.end(ConnectionId(8))
        await services.sessions.end(ConnectionId(7))
        assert (await services.limits.get_user_limits(admin, "reader")).connection_count == 1

    play(scenario)
