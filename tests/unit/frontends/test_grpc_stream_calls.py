"""The calls of StreamService and the admission of readers, over a vhost in memory."""

from google.protobuf.message import Message

from penstock.model.names import VhostName
from penstock.native import OpenConsume, OpenGet, OpenRead, QueueCounts, StreamRetention
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import streams_pb2 as wire
from support.grpc_fakes import FakeCall, World, basic, play

NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, FAILED_PRECONDITION = 5, 7, 3, 9


async def ask(world: World, method: str, request: Message, user: str = "admin") -> tuple[object, ...]:
    return await world.ask(FakeCall(method=method, payload=request.SerializeToString(), authorization=basic(user)))


async def call(world: World, method: str, request: Message):
    result = await ask(world, method, request)
    assert result[0] == "answer", result
    return getattr(wire, f"{method}Response").FromString(result[1])


async def declared(world: World, name: str, partitions: int = 0, **arguments: str) -> list[str]:
    request = wire.DeclareStreamRequest(name=name, partitions=partitions)
    for key, value in arguments.items():
        request.arguments[key.replace("_", "-")].string_value = value
    return list((await call(world, "DeclareStream", request)).partitions)


def shard(world: World):
    return world.storage.shards[VhostName("/")]


def stored(world: World, name: str, times: list[int], first: int = 1) -> None:
    """Fill the stream with messages of these times."""
    number = next(number for number, queue in shard(world).queues.items() if queue == name)
    stream = shard(world).streams[number]
    stream.first, stream.times = first, times


async def read(
    world: World, user: str = "admin", *, partition: str, group: str = "", single_active: bool = False
) -> tuple[object, ...]:
    request = OpenRead(vhost="", partition=partition, group=group, single_active=single_active)
    return await world.ask(FakeCall(request, authorization=basic(user)))


def test_a_declared_stream_is_listed_with_its_partitions_and_the_engine_knows_what_to_keep():
    async def scenario(world):
        assert await declared(world, "orders", x_max_age="1h") == ["orders"]
        assert await declared(world, "clicks", 2) == ["clicks-0", "clicks-1"]
        forgotten = world.listener.forget_count
        assert await declared(world, "clicks", 2) == ["clicks-0", "clicks-1"]
        assert world.listener.forget_count == forgotten
        stored(world, "clicks-0", [5, 6])
        stored(world, "clicks-1", [7])

        listed = (await call(world, "ListStreams", wire.ListStreamsRequest())).streams
        assert [(one.name, list(one.partitions), one.message_count) for one in listed] == [
            ("clicks", ["clicks-0", "clicks-1"], 3),
            ("orders", ["orders"], 0),
        ]
        assert listed[1].arguments["x-max-age"].string_value == "1h"
        assert shard(world).streams[1].retention == StreamRetention(age_ms_max=3_600_000)
        only = (await call(world, "ListStreams", wire.ListStreamsRequest(name="clicks"))).streams
        assert [one.name for one in only] == ["clicks"]
        assert (await ask(world, "ListStreams", wire.ListStreamsRequest(name="none")))[1] == NOT_FOUND

    play(scenario)


def test_a_deleted_stream_takes_its_messages_and_partitions_along():
    async def scenario(world):
        await declared(world, "clicks", 3)
        shard(world).counts["clicks-1"] = QueueCounts(ready_count=4)

        answer = await call(world, "DeleteStream", wire.DeleteStreamRequest(name="clicks"))

        assert answer.dropped_count == 4
        assert shard(world).queues == {}
        assert (await ask(world, "DeleteStream", wire.DeleteStreamRequest(name="clicks")))[1] == NOT_FOUND

    play(scenario)


def test_offsets_are_told_for_every_partition_and_for_a_time():
    async def scenario(world):
        await declared(world, "clicks", 2)
        stored(world, "clicks-0", [10, 20, 30], first=5)

        answer = await call(world, "GetOffsets", wire.GetOffsetsRequest(stream="clicks", timestamp_ms=15))

        first, second = answer.partitions
        assert (first.partition, first.first, first.next, first.message_count) == ("clicks-0", 5, 8, 3)
        assert (first.first_timestamp_ms, first.last_timestamp_ms, first.at_timestamp) == (10, 30, 6)
        assert (second.first, second.next, second.at_timestamp) == (1, 1, 1)
        alone = await call(world, "GetOffsets", wire.GetOffsetsRequest(stream="clicks-0"))
        assert [one.HasField("at_timestamp") for one in alone.partitions] == [False]

    play(scenario)


def test_a_group_s_offset_is_stored_listed_with_its_lag_and_forgotten():
    async def scenario(world):
        await declared(world, "clicks", 2)
        stored(world, "clicks-0", [10, 20, 30], first=5)
        request = wire.StoreOffsetRequest(partition="clicks-0", group="billing", offset=6)
        await call(world, "StoreOffset", request)

        groups = (await call(world, "ListGroups", wire.ListGroupsRequest(stream="clicks"))).groups
        assert [(one.name, one.partition, one.offset, one.lag) for one in groups] == [("billing", "clicks-0", 6, 1)]

        request.offset = 8
        refused = await ask(world, "StoreOffset", request)
        assert refused[1] == INVALID_ARGUMENT
        assert "the next message gets 8" in str(refused[2])
        request.group = ""
        assert (await ask(world, "StoreOffset", request))[1] == INVALID_ARGUMENT

        deletion = wire.DeleteGroupRequest(stream="clicks", group="billing")
        assert (await call(world, "DeleteGroup", deletion)).deleted
        assert not (await call(world, "DeleteGroup", deletion)).deleted

    play(scenario)


def test_a_trim_drops_the_oldest_for_whoever_may_delete_the_stream():
    async def scenario(world):
        await declared(world, "open-s")
        stored(world, "open-s", [10, 20, 30], first=5)
        request = wire.TrimStreamRequest(partition="open-s", before=7)

        assert (await ask(world, "TrimStream", request, "reader"))[1] == PERMISSION_DENIED
        trimmed = await call(world, "TrimStream", request)

        assert (trimmed.dropped_count, trimmed.first) == (2, 7)
        assert (await call(world, "TrimStream", request)).dropped_count == 0
        request.partition = "nowhere"
        assert (await ask(world, "TrimStream", request))[1] == NOT_FOUND

    play(scenario)


def test_the_lag_of_a_group_that_retention_overtook_is_what_is_there():
    async def scenario(world):
        await declared(world, "s")
        stored(world, "s", [10, 20, 30], first=2**33)
        shard(world).streams[1].groups["late"] = 3

        (group,) = (await call(world, "ListGroups", wire.ListGroupsRequest(stream="s"))).groups
        assert group.lag == 3

    play(scenario)


def test_a_producer_learns_how_far_it_came():
    async def scenario(world):
        shard(world).sequences["import"] = 41

        known = await call(world, "GetProducer", wire.GetProducerRequest(producer="import"))
        unknown = await call(world, "GetProducer", wire.GetProducerRequest(producer="other"))

        assert (known.sequence, known.highest) == (41, 41)
        assert (unknown.HasField("sequence"), unknown.highest) == (False, 0)

    play(scenario)


def test_readers_are_admitted_to_what_they_may_read():
    async def scenario(world):
        await declared(world, "closed")
        await declared(world, "open.events")

        assert await read(world, "reader", partition="open.events") == ("admit", "/", 2)
        assert (await read(world, "reader", partition="closed"))[1] == PERMISSION_DENIED
        assert (await read(world, partition="none"))[1] == NOT_FOUND
        assert (await read(world, partition=""))[1] == INVALID_ARGUMENT
        assert (await read(world, partition="closed", single_active=True))[1] == INVALID_ARGUMENT
        assert (await read(world, partition="closed", group="g" * 256))[1] == INVALID_ARGUMENT
        assert (await read(world, partition="closed", group="g", single_active=True))[0] == "admit"
        of_replica = OpenRead(vhost="", partition="open.events", group="", from_replica=True)
        found = await world.ask(FakeCall(of_replica, authorization=basic("reader")))
        assert found == ("admit", "/", 2), "the only broker leads"

    play(scenario)


def test_streams_are_read_and_queues_consumed_and_each_refusal_names_the_other():
    async def scenario(world):
        await declared(world, "events")
        jobs = admin.DeclareQueueRequest(queue=admin.Queue(name="jobs", durable=True))
        await ask(world, "DeclareQueue", jobs)

        for request in (OpenConsume(vhost="", queue="events"), OpenGet(vhost="", queue="events")):
            refused = await world.ask(FakeCall(request, authorization=basic("admin")))
            assert refused[1] == INVALID_ARGUMENT
            assert "StreamService.Read" in refused[2]
        refused = await read(world, partition="jobs")
        assert refused[1] == INVALID_ARGUMENT
        assert "consume" in str(refused[2])

    play(scenario)


def test_messages_of_a_quorum_queue_with_a_single_active_consumer_are_consumed_and_not_got():
    async def scenario(world):
        queue = admin.Queue(name="ordered", durable=True)
        queue.arguments["x-queue-type"].string_value = "quorum"
        queue.arguments["x-single-active-consumer"].bool_value = True
        await ask(world, "DeclareQueue", admin.DeclareQueueRequest(queue=queue))

        refused = await world.ask(FakeCall(OpenGet(vhost="", queue="ordered"), authorization=basic("admin")))
        consumed = await world.ask(FakeCall(OpenConsume(vhost="", queue="ordered"), authorization=basic("admin")))

        text = "queue 'ordered' in vhost '/' is a quorum queue with a single active consumer; consume it instead"
        assert refused[1:3] == (FAILED_PRECONDITION, text)
        assert consumed[0] == "admit"

    play(scenario)


def test_a_stream_takes_the_permissions_of_its_parts():
    async def scenario(world):
        await declared(world, "open.clicks", 2)
        for method, request in (
            ("DeclareStream", wire.DeclareStreamRequest(name="open.mine")),
            ("DeleteStream", wire.DeleteStreamRequest(name="open.clicks")),
        ):
            assert (await ask(world, method, request, "reader"))[1] == PERMISSION_DENIED
        stored(world, "open.clicks-0", [1, 2])
        request = wire.StoreOffsetRequest(partition="open.clicks-0", group="g", offset=1)  # type: ignore[assignment]
        assert (await ask(world, "StoreOffset", request, "reader"))[0] == "answer"
        assert (await ask(world, "StoreOffset", request, "outsider"))[1] == PERMISSION_DENIED
        assert (await ask(world, "ListStreams", wire.ListStreamsRequest(), "outsider"))[1] == PERMISSION_DENIED
        assert (await ask(world, "ListGroups", wire.ListGroupsRequest(stream="open.clicks"), "reader"))[0] == "answer"

    play(scenario)


def test_streams_are_listed_in_pages():
    """All of them came in one answer, however many there were."""

    async def scenario(world):
        for name in ("c", "a", "b", "d"):
            await declared(world, name)
        names, token = [], ""
        while True:
            page = await call(world, "ListStreams", wire.ListStreamsRequest(page_size=3, page_token=token))
            names.append([stream.name for stream in page.streams])
            token = page.next_page_token
            if not token:
                break
        assert names == [["a", "b", "c"], ["d"]]
        only = await call(world, "ListStreams", wire.ListStreamsRequest(name="b", page_size=1))
        assert ([stream.name for stream in only.streams], only.next_page_token) == (["b"], "")

    play(scenario)


def test_a_page_of_streams_ends_when_they_have_a_thousand_partitions():
    async def scenario(world):
        for name in ("a", "b", "c"):
            await call(world, "DeclareStream", wire.DeclareStreamRequest(name=name, partitions=600))
        first = await call(world, "ListStreams", wire.ListStreamsRequest())
        second = await call(world, "ListStreams", wire.ListStreamsRequest(page_token=first.next_page_token))
        assert [[stream.name for stream in page.streams] for page in (first, second)] == [["a", "b"], ["c"]]
        assert second.next_page_token == ""

    play(scenario)


def test_groups_are_listed_in_pages_also_when_one_reads_several_partitions():
    async def scenario(world):
        for partition in await declared(world, "clicks", 2):
            stored(world, partition, [1, 2])
            for group in ("x", "y"):
                request = wire.StoreOffsetRequest(partition=partition, group=group, offset=1)
                await call(world, "StoreOffset", request)
        found, token = [], ""
        while True:
            page = await call(
                world, "ListGroups", wire.ListGroupsRequest(stream="clicks", page_size=1, page_token=token)
            )
            found += [(group.name, group.partition) for group in page.groups]
            token = page.next_page_token
            if not token:
                break
        assert found == [("x", "clicks-0"), ("x", "clicks-1"), ("y", "clicks-0"), ("y", "clicks-1")]

    play(scenario)
