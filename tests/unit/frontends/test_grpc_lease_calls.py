"""The calls of leases, over a vhost in memory."""

from google.protobuf.message import Message

from penstock.model.names import VhostName
from penstock.native import QueueCounts
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import messaging_pb2 as wire
from support.grpc_fakes import FakeCall, World, basic, play

NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT = 5, 7, 3


async def ask(world: World, method: str, request: Message, user: str = "admin") -> tuple[object, ...]:
    return await world.ask(FakeCall(method=method, payload=request.SerializeToString(), authorization=basic(user)))


async def call(world: World, method: str, request: Message):
    result = await ask(world, method, request)
    assert result[0] == "answer", result
    return getattr(wire, f"{method}Response").FromString(result[1])


async def filled(world: World, name: str, ready_count: int) -> None:
    await ask(world, "DeclareQueue", admin.DeclareQueueRequest(queue=admin.Queue(name=name, durable=True)))
    world.storage.shards[VhostName("/")].counts[name] = QueueCounts(ready_count=ready_count)


def test_a_lease_is_reserved_listed_and_acknowledged():
    async def scenario(world):
        await filled(world, "orders", 10)
        wanted = wire.ReserveLeaseRequest(queue="orders", owner="lake", lease=1, messages_max=4)

        reserved = await call(world, "ReserveLease", wanted)

        assert (reserved.lease.lease, reserved.lease.message_count, reserved.ready_count) == (1, 4, 6)
        listed = await call(world, "ListLeases", wire.ListLeasesRequest(queue="orders"))
        assert [(one.owner, [lease.lease for lease in one.leases]) for one in listed.owners] == [("lake", [1])]
        assert listed.ready_count == 6
        other = await call(world, "ListLeases", wire.ListLeasesRequest(queue="orders", owner="pond"))
        assert not other.owners
        acked = await call(world, "AckLeases", wire.AckLeasesRequest(queue="orders", owner="lake", up_to=1))
        assert acked.settled_count == 4

    play(scenario)


def test_leases_from_a_number_on_are_released():
    async def scenario(world):
        await filled(world, "orders", 10)
        for lease in (1, 2):
            wanted = wire.ReserveLeaseRequest(queue="orders", owner="lake", lease=lease, messages_max=3)
            await call(world, "ReserveLease", wanted)

        request = wire.ReleaseLeasesRequest(queue="orders", owner="lake", **{"from": 2})  # type: ignore[arg-type]

        assert (await call(world, "ReleaseLeases", request)).released_count == 3

    play(scenario)


def test_what_names_no_queue_or_owner_is_refused():
    async def scenario(world):
        await filled(world, "orders", 1)
        requests = {
            "ReserveLease": wire.ReserveLeaseRequest,
            "AckLeases": wire.AckLeasesRequest,
            "ReleaseLeases": wire.ReleaseLeasesRequest,
        }
        for method, request in requests.items():
            assert (await ask(world, method, request(queue="", owner="lake")))[1] == INVALID_ARGUMENT
            assert (await ask(world, method, request(queue="orders", owner="")))[1] == INVALID_ARGUMENT
            assert (await ask(world, method, request(queue="nothing", owner="lake")))[1] == NOT_FOUND

    play(scenario)
