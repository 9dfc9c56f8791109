"""What verbs tell the listeners.

Each change once, also when a later step fails, and nothing for what changes no right.
"""

import pytest

from penstock.model.errors import AccessRefusedError, DiskFullError, InvalidArgumentError, Thing
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind
from penstock.services import (
    DeclareExchange,
    DeclareQueue,
    HeldPermission,
    HeldTopicPermission,
    Password,
    WantedPolicy,
)
from penstock.services.events import Event, Events, LimitsChanged, PermissionsChanged, TokenChanged, TopologyChanged
from penstock.services.listeners import Listeners
from support.grpc_fakes import FakeListener, FakeUserLimits, World, play

FULL = DiskFullError(Thing("file", "user-limits.json"), "has no room", "free some")


async def logged_in(world: World, user: str = "admin"):
    connection = world.services.connections.open(ConnectionId(1), "127.0.0.1:9")
    return await world.services.sessions.log_in(Password(user, user), connection)


def told(world: World) -> tuple[int, int, list[int], int]:
    listener = world.listener
    return listener.forget_count, listener.recheck_count, listener.rechecked, len(listener.quotas)


def test_a_declare_of_a_queue_and_a_bind_make_no_stream_ask_again():
    async def scenario(world: World) -> None:
        topology, principal = world.services.topology, await logged_in(world)
        await topology.declare_queue(principal, "/", DeclareQueue(QueueName("q"), ConnectionId(1)))
        binding = Binding(ExchangeName("amq.direct"), DestinationKind.QUEUE, QueueName("q"), RoutingKey("k"))
        await topology.bind(principal, "/", binding)
        await topology.unbind(principal, "/", binding)
        assert told(world) == (0, 0, [], 0)

    play(scenario)


def test_a_new_exchange_makes_publishers_of_its_vhost_ask_again_and_a_policy_nobody():
    async def scenario(world: World) -> None:
        principal = await logged_in(world)
        for _ in range(2):  # the second one changes nothing
            await world.services.topology.declare_exchange(principal, "/", DeclareExchange(ExchangeName("news")))
        assert told(world) == (1, 0, [], 0)
        policy = WantedPolicy("p", "^none$", definition={"alternate-exchange": "news"})
        await world.services.policies.set_policy(principal, "/", policy)
        assert told(world) == (1, 0, [], 0)
        assert world.listener.forgotten == ["/"]

    play(scenario)


def test_a_deletion_of_a_user_that_fails_half_way_makes_its_streams_ask_again():
    """The streams went on: a failed later step lost the events of the earlier one."""

    async def scenario(world: World) -> None:
        principal = await logged_in(world)
        delete = world.accounts.delete_user

        async def fail(name: str, *, force: bool = False, forget: object = None) -> None:
            await delete(name, force=force)
            raise FULL

        world.accounts.delete_user = fail  # type: ignore[method-assign]
        with pytest.raises(DiskFullError):
            await world.services.users.delete_user(principal, "reader")
        assert "reader" not in [user.name for user in world.accounts.users()]
        assert told(world) == (0, 1, [], 0)

    play(scenario)


def test_a_deletion_of_a_vhost_that_fails_half_way_makes_publishers_ask_again():
    async def scenario(world: World) -> None:
        principal = await logged_in(world)
        await world.services.vhosts.create_vhost(principal, "blue")

        async def refuse(_):
            raise FULL

        world.storage.delete = refuse  # type: ignore[method-assign]
        with pytest.raises(DiskFullError):
            await world.services.vhosts.delete_vhost(principal, "blue")
        assert told(world) == (1, 1, [], 0)

    play(scenario)


def test_an_import_by_somebody_who_may_not_makes_no_stream_ask_again():
    async def scenario(world: World) -> None:
        reader, admin = await logged_in(world, "reader"), await logged_in(world)
        with pytest.raises(AccessRefusedError):
            await world.services.definitions.import_definitions(reader, b"{}")
        assert told(world) == (0, 0, [], 0)
        with pytest.raises(InvalidArgumentError):
            await world.services.definitions.import_definitions(admin, b'{"queues": [{}]}')
        assert told(world) == (0, 0, [], 0)

    play(scenario)


EXCHANGE = b'{"exchanges": [{"name": "news", "vhost": "/", "type": "fanout", "durable": true}]}'
EXCHANGE_OF_ONE = b'{"exchanges": [{"name": "news", "type": "fanout", "durable": true}]}'
USER = b'{"users": [{"name": "anna", "password_hash": "", "tags": []}]}'


@pytest.mark.parametrize(
    ("text", "vhost", "rechecks", "forgotten"),
    [
        (b"{}", None, [], []),
        (EXCHANGE, None, [], [None]),
        (EXCHANGE_OF_ONE, "/", [], ["/"]),
        (USER, None, [(None, None)], []),
    ],
)
def test_an_import_makes_streams_ask_again_about_what_it_changed_alone(
    text: bytes, vhost: str | None, rechecks: list[tuple[None, None]], forgotten: list[str | None]
):
    """Each import made every stream of the broker ask again, also one that changed nothing or was refused."""

    async def scenario(world: World) -> None:
        admin = await logged_in(world)
        await world.services.definitions.import_definitions(admin, text, vhost)
        assert (world.listener.rechecks, world.listener.forgotten) == (rechecks, forgotten)
        if not rechecks:  # the fake imports a user again each time
            await world.services.definitions.import_definitions(admin, text, vhost)
            assert (world.listener.rechecks, world.listener.forgotten) == (rechecks, forgotten)

    play(scenario)


def test_limits_are_applied_by_the_verb_that_sets_them():
    async def scenario(world: World) -> None:
        principal = await logged_in(world)
        await world.services.limits.set_vhost_limits(principal, "/", {"publish_rate": 7})
        await world.services.limits.set_user_limits(principal, "anna", {"streams_max": 3})
        assert world.listener.quotas == [("/", False, {"publish_rate": 7}), ("anna", True, {"streams_max": 3})]

    play(scenario)


def test_a_limit_of_an_unknown_name_is_refused():
    async def scenario(world: World) -> None:
        principal = await logged_in(world)
        with pytest.raises(InvalidArgumentError, match="'rate', which is unknown"):
            await world.services.limits.set_vhost_limits(principal, "/", {"rate": 7})
        with pytest.raises(InvalidArgumentError, match="'rate', which is unknown"):
            await world.services.limits.set_user_limits(principal, "anna", {"rate": 7})
        assert told(world) == (0, 0, [], 0)

    play(scenario)


def test_events_of_one_verb_are_delivered_once_and_together():
    heard: list[frozenset[Event]] = []
    events = Events()
    events.subscribe(heard.append)

    with events.commit() as changed:
        changed.update([PermissionsChanged("anna"), PermissionsChanged("anna"), LimitsChanged()])
        assert heard == []
    with events.commit():
        pass

    assert heard == [{PermissionsChanged("anna"), LimitsChanged()}]


def test_permissions_name_the_user_and_the_vhost_whose_streams_ask_again():
    """Every stream of the broker asked again."""

    async def scenario(world: World) -> None:
        principal, users = await logged_in(world), world.services.users
        await users.put_user(principal, "anna", None, None)
        await users.set_permission(principal, HeldPermission("reader", "/", "", "", ".*"))
        await users.set_topic_permission(principal, HeldTopicPermission("reader", "/", "amq.topic", "a", "b"))
        assert world.listener.rechecks == [("anna", None), ("reader", "/"), ("reader", "/")]

    play(scenario)


def test_a_listener_is_told_each_kind_of_change_by_name():
    listener, limits = FakeListener(), FakeUserLimits()
    listeners = Listeners(dict, limits)
    listeners.add(listener)

    listeners.take(frozenset({TopologyChanged("/"), PermissionsChanged("anna"), TokenChanged(ConnectionId(3))}))

    assert (listener.forgotten, listener.rechecks, listener.rechecked) == (["/"], [("anna", None)], [3])
    listener.close()


def test_limits_of_one_user_are_applied_without_a_look_at_the_others():
    listener, limits = FakeListener(), FakeUserLimits()
    listeners = Listeners(dict, limits)
    listeners.add(listener)
    limits.limits |= {"anna": Limits(streams_max=2), "ben": Limits(streams_max=3)}

    listeners.take(frozenset({LimitsChanged(user="anna")}))
    assert listener.quotas == [("anna", True, {"streams_max": 2})]
    limits.limits.pop("anna")
    listeners.take(frozenset({LimitsChanged()}))
    assert listener.quotas[1:] == [("anna", True, {}), ("ben", True, {"streams_max": 3})]
    listener.close()


def test_a_new_listener_knows_the_limits_and_one_that_is_removed_hears_nothing():
    listener, limits = FakeListener(), FakeUserLimits()
    limits.limits["anna"] = Limits(streams_max=2)
    listeners = Listeners(dict, limits)
    listeners.add(listener)
    assert listener.quotas == [("anna", True, {"streams_max": 2})]

    listeners.remove(listener)
    listeners.take(frozenset({PermissionsChanged()}))
    assert listener.recheck_count == 0
    listener.close()
