"""Users of a cluster: changes are commands, and a log-in looks again when another broker has changed the user."""

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.commands import CreateVhost, JoinBroker, MetaAnswer, MetaCommand, Request
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.identity import Permission, TopicPermission
from penstock.model.errors import NotAuthenticatedError
from penstock.model.limits import Limits
from penstock.model.names import VhostName
from penstock.node.in_cluster.accounts import ClusterAccounts, ClusterLimits
from penstock.node.in_cluster.metadata import Metadata
from penstock.services.definitions_users import DefinitionsUsers

SHOP = VhostName("shop")
EVERYTHING = Permission.compile(".*", ".*", ".*")


class DecidingMetadata:
    """Decides and applies commands at once. `arriving` are applied when a caller catches up."""

    def __init__(self) -> None:
        self.state = MetaState()
        self.arriving: list[MetaCommand] = []
        self.commands: list[MetaCommand] = []
        self._apply(0, JoinBroker(BrokerName("mq-0"), 1, None))
        self._apply(1, CreateVhost(SHOP))

    async def submit(self, command: MetaCommand) -> MetaAnswer:
        self.commands.append(command)
        return self._apply(1, command)

    async def catch_up(self) -> None:
        while self.arriving:
            self._apply(1, self.arriving.pop(0))

    def _apply(self, session: int, command: MetaCommand) -> MetaAnswer:
        number = self.state.position + 1
        decided = decide(PendingState(self.state), Request(session, number, number, command))
        if isinstance(decided, Record):
            self.state.apply(decided, number)
            return decided.answer
        return decided


class World:
    def __init__(self) -> None:
        self.metadata = DecidingMetadata()
        metadata = cast(Metadata, self.metadata)
        self.accounts, self.limits = ClusterAccounts(metadata), ClusterLimits(metadata)
        self.users = DefinitionsUsers(self.accounts, self.limits)


@pytest.fixture
def world() -> World:
    return World()


async def logs_in(accounts: ClusterAccounts, name: str, password: str) -> bool:
    try:
        await accounts.log_in(name, password)
    except NotAuthenticatedError:
        return False
    return True


def test_a_user_that_is_put_can_log_in(world: World) -> None:
    async def scenario() -> None:
        assert await world.accounts.put_user("walter", "secret", ["administrator"])
        assert not await world.accounts.put_user("walter", "other", None)

        assert await logs_in(world.accounts, "walter", "other")
        assert not await logs_in(world.accounts, "walter", "secret")

    asyncio.run(scenario())


def test_a_user_of_another_broker_can_log_in_once_this_one_has_caught_up(world: World) -> None:
    async def scenario() -> None:
        other = World()
        await other.accounts.put_user("walter", "secret", ())
        world.metadata.arriving = other.metadata.commands

        assert await logs_in(world.accounts, "walter", "secret")
        assert not await logs_in(world.accounts, "nobody", "secret")

    asyncio.run(scenario())


def test_permissions_and_limits_are_set_and_deleted(world: World) -> None:
    async def scenario() -> None:
        accounts = world.accounts
        await accounts.put_user("root", "secret", ["administrator"])
        await accounts.put_user("walter", "secret", ())
        await accounts.set_permission("walter", SHOP, EVERYTHING)
        await accounts.set_topic("walter", SHOP, "web", TopicPermission.compile("walter", SHOP, "a.*", ".*"))
        await world.limits.set("walter", Limits(connections_max=3))

        walter = accounts.find("walter")
        assert walter is not None
        assert walter.permissions == {SHOP: EVERYTHING}
        assert list(walter.topics[SHOP]) == ["web"]
        assert world.limits.find("walter").connections_max == 3

        await accounts.delete_topics("walter", SHOP, None)
        await accounts.delete_permission("walter", SHOP)
        names: list[str] = []
        await accounts.delete_user("walter", forget=forgotten(names))

        assert names == ["walter"]
        assert [user.name for user in accounts.users()] == ["root"]
        assert not world.limits.all()

    asyncio.run(scenario())


def forgotten(names: list[str]) -> Callable[[str], "asyncio.Future[None]"]:
    def forget(name: str) -> "asyncio.Future[None]":
        names.append(name)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    return forget


def test_an_import_is_one_command_for_each_user_and_permission_that_changes(world: World) -> None:
    async def scenario() -> None:
        await world.accounts.put_user("root", "secret", ["administrator"])
        await world.accounts.set_permission("root", SHOP, EVERYTHING)
        users, permissions = world.users.export_users(), world.users.export_permissions()
        again = World()

        assert await again.users.import_users(users) == 1
        assert await again.users.import_permissions(permissions) == 1
        assert await again.users.import_users(users) == 0

        assert again.users.export_users() == users
        assert again.users.export_permissions() == permissions
        assert len(again.metadata.commands) == 2

    asyncio.run(scenario())
