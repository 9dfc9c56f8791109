"""Admissions, and the front end's handling of credentials, bugs and faults."""

import asyncio

import structlog

from penstock.identity import TopicPermission
from penstock.model.limits import Limits
from penstock.native import Disconnected, OpenConsume, OpenGet, OpenPublish, OpenSettle, PermitExchange, PermitKeys
from penstock.v1 import admin_pb2 as admin
from support.grpc_fakes import FakeCall, basic, play

NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, INTERNAL, UNAVAILABLE, UNAUTHENTICATED = 5, 7, 3, 13, 14, 16


def publish(vhost=""):
    return OpenPublish(vhost=vhost)


def permit(exchange):
    return PermitExchange(vhost="/", exchange=exchange)


def consume(queue, vhost=""):
    return OpenConsume(vhost=vhost, queue=queue)


async def declared(world, name, **fields):
    request = admin.DeclareQueueRequest(queue=admin.Queue(name=name, durable=True, **fields))
    await world.ask(FakeCall(method="DeclareQueue", payload=request.SerializeToString(), authorization=basic("admin")))


def test_a_publisher_is_admitted_to_the_vhost_and_asks_for_each_exchange():
    async def scenario(world):
        admin_ = basic("admin")
        assert await world.ask(FakeCall(publish(), authorization=admin_)) == ("admit", "/", 0)
        for exchange in ("", "amq.topic"):
            asked = FakeCall(permit(exchange), authorization=admin_)
            assert (await world.ask(asked))[0] == "admit"
        asked = FakeCall(permit("none"), authorization=admin_)
        assert (await world.ask(asked))[:2] == ("refuse", NOT_FOUND)

    play(scenario)


def test_a_publisher_is_refused_what_it_may_not_write():
    async def scenario(world):
        reader, outsider = basic("reader"), basic("outsider")
        assert (await world.ask(FakeCall(publish(), authorization=reader)))[0] == "admit"
        asked = FakeCall(permit("amq.topic"), authorization=reader)
        assert (await world.ask(asked))[1] == PERMISSION_DENIED
        assert (await world.ask(FakeCall(publish(), authorization=outsider)))[1] == PERMISSION_DENIED
        nowhere = FakeCall(publish("nowhere"), authorization=basic("admin"))
        assert (await world.ask(nowhere))[1] in (NOT_FOUND, PERMISSION_DENIED)

    play(scenario)


def test_routing_keys_of_a_narrowed_exchange_are_asked_for_many_at_a_time():
    async def scenario(world):
        await world.accounts.set_topic("admin", "/", "amq.topic", TopicPermission.compile("admin", "/", "a.*", ""))
        await world.accounts.set_topic("admin", "/", "amq.direct", TopicPermission.compile("admin", "/", "a.*", ""))
        permits = {
            name: FakeCall(permit(name), authorization=basic("admin"))
            for name in ("amq.topic", "amq.direct", "amq.fanout")
        }
        for asked in permits.values():
            assert (await world.ask(asked))[0] == "admit"
        assert [name for name, asked in permits.items() if asked.by_key] == ["amq.topic"]

        keys = ["abc", "b", "", "a" + "\udcff" * 254]
        asked = FakeCall(PermitKeys(vhost="/", exchange="amq.topic", keys=keys), authorization=basic("admin"))
        assert await world.ask(asked) == ("keys", True, False, False, True)

    play(scenario)


def test_consumers_getters_and_settlers_are_given_the_queues_number():
    async def scenario(world):
        await declared(world, "closed")
        await declared(world, "open.jobs")
        for request in (
            consume("open.jobs"),
            OpenGet(vhost="", queue="open.jobs"),
            OpenSettle(vhost="", queue="open.jobs"),
        ):
            assert await world.ask(FakeCall(request, authorization=basic("reader"))) == ("admit", "/", 2)
        refused = await world.ask(FakeCall(consume("closed"), authorization=basic("reader")))
        assert refused[1] == PERMISSION_DENIED
        refused = await world.ask(FakeCall(consume("none"), authorization=basic("admin")))
        assert refused[1] == NOT_FOUND
        refused = await world.ask(FakeCall(consume(""), authorization=basic("admin")))
        assert refused[1] == INVALID_ARGUMENT

    play(scenario)


def test_another_connection_cannot_consume_from_an_exclusive_queue():
    async def scenario(world):
        await declared(world, "mine", exclusive=True)
        call = FakeCall(consume("mine"), authorization=basic("admin"), connection=2)
        assert (await world.ask(call))[0] == "refuse"
        call = FakeCall(consume("mine"), authorization=basic("admin"), connection=1)
        assert (await world.ask(call))[0] == "admit"

    play(scenario)


def test_bad_credentials_are_refused_before_anything_is_looked_at():
    async def scenario(world):
        for authorization in (
            "",
            "Basic",
            "Basic !!!",
            "Bearer abc",
            basic("admin", "wrong"),
            basic("", ""),
            "Basic YQ==",
        ):
            result = await world.ask(FakeCall(method="Frobnicate", payload=b"\xff", authorization=authorization))
            assert result[:2] == ("refuse", UNAUTHENTICATED), authorization

    play(scenario)


def test_a_bug_in_one_call_is_logged_and_answered_and_harms_no_other():
    async def scenario(world):
        def broken(*_):
            raise AssertionError("impossible")

        world.vhosts.get, kept = broken, world.vhosts.get
        with structlog.testing.capture_logs() as logged:
            result = await world.ask(FakeCall(publish(), authorization=basic("admin")))
        world.vhosts.get = kept
        assert result[:2] == ("refuse", INTERNAL)
        assert "impossible" not in result[2]
        assert [line["log_level"] for line in logged if line["logger_name"] != "audit"] == ["error"]
        assert (await world.ask(FakeCall(publish(), authorization=basic("admin"))))[0] == "admit"

    play(scenario)


def test_a_fault_of_the_disk_is_told_as_unavailable():
    async def scenario(world):
        world.storage.definitions["/"].fails = True
        request = admin.DeclareQueueRequest(queue=admin.Queue(name="q", durable=True)).SerializeToString()
        result = await world.ask(FakeCall(method="DeclareQueue", payload=request, authorization=basic("admin")))
        assert result[1] == UNAVAILABLE

    play(scenario)


def test_a_call_that_waits_for_the_disk_keeps_nobody_waiting():
    async def scenario(world):
        definitions = world.storage.definitions["/"]
        definitions.hold()
        request = admin.DeclareQueueRequest(queue=admin.Queue(name="q", durable=True)).SerializeToString()
        slow = FakeCall(method="DeclareQueue", payload=request, authorization=basic("admin"))
        world.listener.put(slow)
        await definitions.entered.wait()

        status = FakeCall(
            method="GetStatus", payload=admin.GetStatusRequest().SerializeToString(), authorization=basic("admin")
        )
        assert (await asyncio.wait_for(world.ask(status), 5))[0] == "answer"
        assert not slow.result.done()
        definitions.go()
        assert (await slow.result)[0] == "answer"

    play(scenario)


def test_a_connection_that_ends_while_its_call_is_decided_is_not_counted_for_ever():
    """It was counted once its user was known, which was after its end.

    The user then had one connection less, until a restart.
    """

    async def scenario(world):
        begun, may_end = asyncio.Event(), asyncio.Event()
        log_in = world.accounts.log_in

        async def slowly(name, password, *, is_loopback, source):
            begun.set()
            await may_end.wait()
            return await log_in(name, password, is_loopback=is_loopback, source=source)

        world.accounts.log_in = slowly
        world.user_limits.limits["admin"] = Limits(connections_max=1)
        gone = FakeCall(publish(), authorization=basic("admin"), connection=7)
        world.listener.put(gone)
        await begun.wait()
        world.listener.put(FakeCall(Disconnected(), connection=7))
        for _ in range(100):
            await asyncio.sleep(0)
        may_end.set()
        await gone.result
        for _ in range(100):
            await asyncio.sleep(0)

        again = FakeCall(publish(), authorization=basic("admin"), connection=8)
        assert await world.ask(again) == ("admit", "/", 0)

    play(scenario)
