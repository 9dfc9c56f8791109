"""Connections that several users share, as behind a proxy: each sees only its own part, and none ends the others."""

import pytest

from penstock.frontends.grpc.client_calls import list_connections, list_consumers
from penstock.model.errors import AccessRefusedError, InvalidArgumentError
from penstock.model.names import ConnectionId
from penstock.native import OpenConsumer
from penstock.services import Password, Principal
from penstock.v1 import admin_pb2 as wire
from support.grpc_fakes import EVERYTHING, World, play


def consumer(user: str, queue: str = "q") -> OpenConsumer:
    return OpenConsumer(
        connection=7,
        user=user,
        vhost="/",
        queue=queue,
        consumer_tag="",
        prefetch=1,
        auto_ack=False,
        exclusive=False,
    )


async def shared(world: World) -> tuple[Principal, Principal]:
    """Return an administrator and a reader who logged in on the same connection and opened publishers."""
    connection = world.services.connections.open(ConnectionId(7), "192.0.2.7:4000")
    admin, reader = [
        await world.services.sessions.log_in(Password(name, name), connection) for name in ("admin", "reader")
    ]
    await world.services.vhosts.create_vhost(admin, "blue")
    await world.accounts.set_permission("admin", "blue", EVERYTHING)
    admin = await world.services.sessions.log_in(Password("admin", "admin"), connection)
    for principal, vhost in ((admin, "/"), (admin, "blue"), (reader, "/")):
        await world.services.admission.open_publisher(principal, vhost)
    world.listener.open_consumers = [consumer("admin"), consumer("admin"), consumer("reader")]
    return admin, reader


def test_a_user_sees_nothing_of_the_others_on_its_connection():
    async def scenario(world: World) -> None:
        admin, reader = await shared(world)
        (whole,) = await world.services.clients.list_connections(admin)
        assert (whole.users, whole.vhosts, whole.consumer_count) == (["admin", "reader"], ["/", "blue"], 3)
        (own,) = await world.services.clients.list_connections(reader)
        assert (own.number, own.users, own.vhosts, own.consumer_count) == (7, ["reader"], ["/"], 1)

    play(scenario)


def test_only_an_administrator_closes_a_connection_of_several_users():
    async def scenario(world: World) -> None:
        admin, reader = await shared(world)
        with pytest.raises(AccessRefusedError, match="is not a connection of yours"):
            await world.services.clients.close_connection(reader, 7)
        assert world.listener.closed == []
        await world.services.clients.close_connection(admin, 7)
        assert world.listener.closed == [7]

    play(scenario)


def test_connections_and_consumers_are_listed_in_pages():
    """10,000 connections were one answer."""

    async def scenario(world: World) -> None:
        admin, _ = await shared(world)
        for number in (9, 8, 10):
            connection = world.services.connections.open(ConnectionId(number), "192.0.2.7:4000")
            await world.services.sessions.log_in(Password("admin", "admin"), connection)
        world.listener.open_consumers = [consumer("admin", queue) for queue in ("c", "a", "b", "b", "b", "d")]

        connections = wire.ListConnectionsRequest(page_size=2)
        ids = []
        while True:
            page = await list_connections(world.services, admin, connections)
            ids.append([each.id for each in page.connections])
            if not (token := page.next_page_token):
                break
            connections.page_token = token
        assert ids == [[7, 8], [9, 10], []]

        consumers = wire.ListConsumersRequest(page_size=2)
        queues = []
        while True:
            found = await list_consumers(world.services, admin, consumers)
            queues.append([each.queue for each in found.consumers])
            if not (token := found.next_page_token):
                break
            consumers.page_token = token
        assert queues == [["a", "b", "b", "b"], ["c", "d"], []]

    play(scenario)


@pytest.mark.parametrize("token", ["7", "after:", "after:x", "after:-1", "after:" + "9" * 30, 'after:["x","/","q",""]'])
def test_a_token_that_the_broker_did_not_issue_is_refused(token):
    async def scenario(world: World) -> None:
        admin, _ = await shared(world)
        for answer in (
            list_connections(world.services, admin, wire.ListConnectionsRequest(page_token=token)),
            list_consumers(world.services, admin, wire.ListConsumersRequest(page_token=token)),
        ):
            with pytest.raises(InvalidArgumentError, match="was not issued by this broker"):
                await answer

    play(scenario)
