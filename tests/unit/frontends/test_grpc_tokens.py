"""Tokens on streams: one that expires ends its streams, unless a newer one came on the same connection."""

import pytest

from penstock.native import (
    DescribeStreams,
    Disconnected,
    OpenConsume,
    OpenGet,
    OpenPublish,
    OpenRead,
    OpenStage,
    PermitExchange,
    ReadArchive,
)
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import streams_pb2 as streams
from support.grpc_fakes import FakeCall, World, basic, play

UNAUTHENTICATED, FAILED_PRECONDITION = 16, 9


def token(world, seconds, name="admin"):
    return f"Bearer {name}.{world.clock.ms + seconds * 1_000}"


def opened(authorization, connection=1):
    return FakeCall(OpenPublish(vhost=""), authorization=authorization, connection=connection)


def stream(kind, authorization, *, again=False):
    request = {
        "publish": OpenPublish(vhost=""),
        "consume": OpenConsume(vhost="", queue="jobs"),
        "read": OpenRead(vhost="", partition="events", group=""),
        "get": OpenGet(vhost="", queue="jobs"),
        "stage": OpenStage(vhost="", stage="rows", stream="events", exchange="", routing_key=""),
        "describe": DescribeStreams(vhost="", streams=["events"], waits=True),
    }[kind]
    return FakeCall(request, authorization=authorization, again=again)  # type: ignore[arg-type]


async def declare(world):
    for method, request in (
        ("DeclareQueue", admin.DeclareQueueRequest(queue=admin.Queue(name="jobs", durable=True))),
        ("DeclareStream", streams.DeclareStreamRequest(name="events")),
    ):
        call = FakeCall(method=method, payload=request.SerializeToString(), authorization=basic("admin"))
        assert (await world.ask(call))[0] == "answer"


def permit(authorization, connection=1):
    request = PermitExchange(vhost="/", exchange="amq.topic")
    return FakeCall(request, authorization=authorization, connection=connection)


def refresh(authorization, connection=1):
    payload = admin.RefreshTokenRequest().SerializeToString()
    return FakeCall(method="RefreshToken", payload=payload, authorization=authorization, connection=connection)


def test_streams_are_asked_again_when_their_token_ends_and_refused() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        assert (await world.ask(opened(first)))[0] == "admit"
        assert world.timers == [60.0]
        assert (await world.ask(permit(first)))[0] == "admit"

        world.clock.ms += 60_000

        assert (await world.ask(permit(first)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


@pytest.mark.parametrize("kind", ["publish", "consume", "read", "get", "stage", "describe"])
def test_an_open_stream_that_asks_again_goes_on_until_its_token_ends(kind: str) -> None:
    async def scenario(world: World) -> None:
        await declare(world)
        first = token(world, 60)
        outcome = {"stage": "stage", "describe": "streams"}.get(kind, "admit")
        assert (await world.ask(stream(kind, first)))[0] == outcome
        assert (await world.ask(stream(kind, first, again=True)))[0] == outcome

        world.clock.ms += 60_000
        world.due.pop()()

        assert (world.listener.rechecked, world.listener.recheck_count) == ([1], 0)
        assert (await world.ask(stream(kind, first, again=True)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


def test_a_stream_of_a_user_who_is_gone_may_not_go_on() -> None:
    async def scenario(world: World) -> None:
        await declare(world)
        assert (await world.ask(stream("consume", basic("admin"))))[0] == "admit"

        await world.accounts.delete_permission("admin", "/")
        assert (await world.ask(stream("consume", basic("admin"), again=True)))[:2] == ("refuse", 7)
        await world.accounts.delete_user("admin", force=True)
        assert (await world.ask(stream("consume", basic("admin"), again=True)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


@pytest.mark.parametrize("kind", ["publish", "consume", "read", "get", "stage", "describe"])
def test_a_stream_ends_when_the_key_of_its_token_is_removed(kind: str) -> None:
    """It went on to the end of the token, which its issuer may have set years ahead, also when the key had leaked."""

    async def scenario(world: World) -> None:
        await declare(world)
        first = token(world, 600)
        await world.ask(stream(kind, first))

        world.accounts.removed_keys.add(world.clock.now_ms() + 600_000)
        world.accounts.keys_removed()

        assert world.listener.rechecked == [1]
        assert (await world.ask(stream(kind, first, again=True)))[:2] == ("refuse", UNAUTHENTICATED)

    play(scenario)


def test_a_stream_whose_newer_token_has_a_published_key_goes_on() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 600)
        await world.ask(stream("publish", first))
        assert (await world.ask(refresh(token(world, 900))))[0] == "answer"

        world.accounts.removed_keys.add(world.clock.now_ms() + 600_000)
        world.accounts.keys_removed()

        assert (await world.ask(stream("publish", first, again=True)))[0] == "admit"

    play(scenario)


def test_keys_are_refreshed_while_a_stream_with_a_token_is_open() -> None:
    async def scenario(world: World) -> None:
        await world.ask(stream("publish", token(world, 600)))
        assert world.timers == [60.0]

        world.due.pop()()

        assert world.accounts.refresh_count == 1
        assert world.timers == [60.0, 60.0]

    play(scenario)


def test_a_timer_that_rings_before_the_clock_says_so_ends_nothing_and_is_set_again() -> None:
    async def scenario(world: World) -> None:
        await world.ask(opened(token(world, 90)))
        assert world.timers == [60.0]

        world.clock.ms += 60_000
        world.due.pop()()

        assert world.timers == [60.0, 30.0]
        assert world.listener.rechecked == []

    play(scenario)


def test_a_stream_that_is_opened_with_a_later_token_is_not_ended_by_the_earlier_one() -> None:
    async def scenario(world: World) -> None:
        first, second = token(world, 60), token(world, 600)
        await world.ask(opened(first))
        await world.ask(opened(second))

        world.clock.ms += 60_000

        assert (await world.ask(permit(second)))[0] == "admit"

    play(scenario)


def test_a_newer_token_counts_in_the_place_of_the_one_a_stream_was_opened_with() -> None:
    async def scenario(world: World) -> None:
        first = token(world, 60)
        await world.ask(opened(first))
        second = token(world, 600)

        kind, answer = await world.ask(refresh(second))
        assert kind == "answer"
        assert admin.RefreshTokenResponse.FromString(answer).expires_at_ms == world.clock.ms + 600_000  # type: ignore[arg-type]
        assert (world.listener.rechecked, world.listener.recheck_count) == ([1], 0)

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
        gone = FakeCall(Disconnected(), connection=1)
        world.listener.put(gone)

        refused = await world.ask(refresh(token(world, 600)))
        assert refused[:2] == ("refuse", FAILED_PRECONDITION)

    play(scenario)


def test_a_reader_of_an_archive_goes_by_the_newest_token() -> None:
    """A long reading ended with its first token, although a newer one had come."""

    async def scenario(world: World) -> None:
        await declare(world)
        first = token(world, 10)
        assert (await world.ask(stream("read", first)))[0] == "admit"
        piece = ReadArchive(vhost="", partition="events", first=0, end=5)
        world.clock.ms += 11_000
        refused = await world.ask(FakeCall(piece, authorization=first))
        assert refused[:2] == ("refuse", UNAUTHENTICATED)
        assert world.log_ins.counts()["log_ins_refused_total"] == 0

        assert (await world.ask(refresh(token(world, 60))))[0] == "answer"
        assert await world.ask(FakeCall(piece, authorization=first)) == ("answer", b"")

    play(scenario)
