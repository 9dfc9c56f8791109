"""Ten thousand of each: queues, bindings of one exchange, consumers of one queue, targets of one message.

The tests check that all of them exist and behave; `make bench` measures the time.
"""

import asyncio
from pathlib import Path

import pytest

import penstock
from penstock.v1 import admin_pb2 as admin
from support import Broker, eventually
from support.crowd import Crowd, pipelined

COUNT = 10_000
CONNECTIONS = 10

pytestmark = pytest.mark.slow


def names() -> list[str]:
    return [f"queue-{number:05}" for number in range(COUNT)]


def declare_all(broker: Broker, vhost: str, durable: bool) -> None:
    requests = (
        admin.DeclareQueueRequest(vhost=vhost, queue=admin.Queue(name=name, durable=durable)) for name in names()
    )
    assert pipelined(broker.address, "DeclareQueue", requests) == COUNT


def bind_all(broker: Broker, vhost: str, exchange: str) -> None:
    bindings = (admin.Binding(source=exchange, destination=name, routing_key=name) for name in names())
    requests = (admin.BindRequest(vhost=vhost, binding=binding) for binding in bindings)
    assert pipelined(broker.address, "Bind", requests) == COUNT


def test_one_message_reaches_ten_thousand_queues_and_all_are_there_after_a_kill(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        declare_all(broker, "/", durable=True)
        bind_all(broker, "/", "amq.fanout")
        with penstock.connect(broker.uri(), durability="disk") as connection:
            connection.publish(b"to everybody", "amq.fanout", mandatory=True)

        broker.kill()
        broker.start()

        with penstock.connect(broker.uri()) as connection:
            assert [(queue.name, queue.ready_count) for queue in connection.admin.list_queues()] == [
                (n, 1) for n in names()
            ]
            assert sorted(one.destination for one in connection.admin.list_bindings("amq.fanout")) == names()
            assert connection.admin.status().ready_count == COUNT
            last = connection.get(names()[-1])
            assert last is not None
            assert last.body == b"to everybody"


def test_a_direct_exchange_with_ten_thousand_keys_leads_each_message_to_its_queue(broker: Broker, vhost: str) -> None:
    declare_all(broker, vhost, durable=False)
    bind_all(broker, vhost, "amq.direct")

    with penstock.connect(broker.uri(vhost)) as connection:
        for name in names()[:: COUNT // 10]:
            connection.publish(name.encode(), "amq.direct", name, mandatory=True)
        chosen = {queue.name for queue in connection.admin.list_queues() if queue.ready_count == 1}

    assert chosen == set(names()[:: COUNT // 10])


def test_ten_thousand_consumers_of_one_queue_take_turns_and_what_they_leave_goes_to_the_rest(
    broker: Broker, vhost: str
) -> None:
    asyncio.run(take_turns(broker, vhost))


async def take_turns(broker: Broker, vhost: str) -> None:
    async with penstock.aio.connect(broker.uri(vhost)) as connection:
        await connection.declare_queue("shared", durable=False)
        async with Crowd(broker.address, vhost, "shared", COUNT, CONNECTIONS) as crowd:
            await connection.publish_many([b"turn"] * COUNT, routing_key="shared")
            await asyncio.gather(*(member.receive() for member in crowd.members))
            assert sorted(number for member in crowd.members for number in member.held) == list(range(1, COUNT + 1))

            leaving, staying = crowd.members[: COUNT // 2], crowd.members[COUNT // 2 :]
            for member in leaving:
                member.leave()
            await asyncio.gather(*(member.acknowledge() for member in staying))
            given_back = await asyncio.gather(*(member.receive() for member in staying))
            assert sorted(number for held in given_back for number in held) == sorted(
                number for member in leaving for number in member.held
            )
            await asyncio.gather(*(member.acknowledge() for member in staying))
    with penstock.connect(broker.uri(vhost)) as looking:
        eventually(
            lambda: (looking.admin.get_queue("shared").consumer_count, looking.admin.get_queue("shared").ready_count),
            (0, 0),
        )
