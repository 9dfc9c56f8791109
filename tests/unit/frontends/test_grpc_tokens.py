"""Tokens on streams: one that ends takes its streams along, unless a newer one came on the same connection."""

import pytest

from penstock.v1 import admin_pb2 as admin
from penstock.v1 import messaging_pb2 as messaging
from support.grpc_fakes import FakeCall, World, play

UNAUTHENTICATED, FAILED_PRECONDITION = 16, 9


def token(world, seconds, name="admin"):
    return f"Bearer {name}.{world.clock.ms + seconds * 1_000}"


def opened(authorization, connection=1):
    payload = messaging.PublishRequest(open=messaging.PublishOpen()).SerializeToString()
    return FakeCall("publish", payload=payload, authorization=authorization, connection=connection)


def permit(authorization, connection=1):
    return FakeCall("permit", vhost="/", subject="amq.topic", authorization=authorization, connection=connection)


def refresh(authorization, connection=1):
    payload = admin.RefreshTokenRequest().SerializeToString()
    return FakeCall("call", "RefreshToken", payload, authorization=authorization, connection=connection)


def test_streams_are_asked_again_when_their_token_ends_and_refused() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        assert (await world.ask(opened(first)))[0] == "admit"
        assert world.timers == [60.0]
        assert (await world.ask(permit(first)))[0] == "admit"

        world.clock.ms += 60_000

        assert (await world.ask(permit(first)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


def test_a_newer_token_counts_in_the_place_of_the_one_a_stream_was_opened_with() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        await world.ask(opened(first))
        second = token(world, 600)

        kind, answer = await world.ask(refresh(second))
        assert kind == "answer"
        assert admin.RefreshTokenResponse.FromString(answer).expires_at_ms == world.clock.ms + 600_000
        assert world.listener.forget_count == 1

        world.clock.ms += 60_000
        assert (await world.ask(permit(first)))[0] == "admit"
        world.clock.ms += 540_000
        assert (await world.ask(permit(first)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


@pytest.mark.parametrize(("name", "connection"), [("reader", 1), ("admin", 2)])
def test_another_person_or_another_connection_renews_nothing(name: str, connection: int) -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        await world.ask(opened(first))

        refused = await world.ask(refresh(token(world, 600, name), connection))
        assert refused[:2] == ("refuse", FAILED_PRECONDITION)

        world.clock.ms += 60_000
        assert (await world.ask(permit(first)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


def test_a_token_without_permission_in_the_newer_one_loses_it() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60, "reader")
        await world.ask(opened(first))
        assert (await world.ask(permit(first)))[:2] == ("refuse", 7)

    play(scenario)


def test_a_connection_that_ended_is_forgotten() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        await world.ask(opened(first))
        gone = FakeCall("disconnected", connection=1)
        world.listener.put(gone)

        refused = await world.ask(refresh(token(world, 600)))
        assert refused[:2] == ("refuse", FAILED_PRECONDITION)

    play(scenario)
