"""Unary calls over the fakes: permissions, changes, and answers."""

import json

import pytest

from penstock.frontends.grpc.calls import METHODS
from penstock.model.errors import StorageError, Thing
from penstock.native import Disconnected, QueueUnused
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import messaging_pb2, staging_pb2
from penstock.v1 import streams_pb2 as wire
from support.grpc_fakes import FakeCall, World, basic, play

NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT, FAILED_PRECONDITION, UNIMPLEMENTED = 5, 7, 3, 9, 12


async def call(world: World, method, request, user="admin", connection=1):
    """Return the response message, or (code, message) of a refusal."""
    payload = request.SerializeToString()
    result = await world.ask(FakeCall(method=method, payload=payload, authorization=basic(user), connection=connection))
    if result[0] == "refuse":
        return result[1:3]
    response = getattr(admin, f"{method}Response")
    return response.FromString(result[1])


async def all_queues_gone(world):
    for _ in range(1_000):  # each call lets the others run
        if not (await call(world, "ListQueues", admin.ListQueuesRequest())).queues:
            return
    pytest.fail("a queue is still there after 1,000 calls")


def declare(name="q", vhost="", **fields):
    return admin.DeclareQueueRequest(vhost=vhost, queue=admin.Queue(name=name, durable=True, **fields))


def test_every_method_of_the_contract_has_a_handler():
    streams = wire.DESCRIPTOR.services_by_name["StreamService"]
    messaging = messaging_pb2.DESCRIPTOR.services_by_name["MessagingService"]
    staging = staging_pb2.DESCRIPTOR.services_by_name["StagingService"]
    # The listener itself moves messages, and decides about staged rows.
    native = {"Get", "Peek", "Settle", "Stage", "PublishStaged", "DiscardStaged"}
    methods = [
        method for service in (streams, messaging, staging) for method in service.methods if method.name not in native
    ]
    unary = [method for method in methods if not method.client_streaming]
    service = admin.DESCRIPTOR.services_by_name["AdminService"]

    assert {method.name: method.input_type.name for method in (*service.methods, *unary)} == {
        name: method.request.DESCRIPTOR.name for name, method in METHODS.items()
    }


def test_a_declared_queue_is_listed_with_its_arguments():
    async def scenario(world):
        request = declare("jobs")
        request.queue.arguments["x-durability"].string_value = "os"
        assert (await call(world, "DeclareQueue", request)).name == "jobs"

        found = await call(world, "ListQueues", admin.ListQueuesRequest())

        assert [queue.name for queue in found.queues] == ["jobs"]
        assert found.queues[0].durable
        assert found.queues[0].arguments["x-durability"].string_value == "os"
        assert found.next_page_token == ""

    play(scenario)


def test_an_empty_name_is_generated():
    async def scenario(world):
        response = await call(world, "DeclareQueue", declare(""))
        assert response.name == "amq.gen-0123456789abcdefghijkl"

    play(scenario)


def test_pages_hold_every_queue_once():
    async def scenario(world):
        for number in range(7):
            await call(world, "DeclareQueue", declare(f"q{number}"))
        names, token = [], ""
        while True:
            page = await call(world, "ListQueues", admin.ListQueuesRequest(page_size=3, page_token=token))
            names += [queue.name for queue in page.queues]
            token = page.next_page_token
            if not token:
                break
        assert names == [f"q{number}" for number in range(7)]

    play(scenario)


def test_pages_of_one_get_past_the_exchange_without_a_name():
    async def scenario(world):
        names, token = [], ""
        while True:
            page = await call(world, "ListExchanges", admin.ListExchangesRequest(page_size=1, page_token=token))
            names += [exchange.name for exchange in page.exchanges]
            token = page.next_page_token
            if not token:
                break
        assert names == ["", "amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.topic"]

    play(scenario)


def test_bindings_are_listed_in_pages():
    """All of them came in one answer, which blocked the loop."""

    async def scenario(world: World):
        await call(world, "DeclareQueue", admin.DeclareQueueRequest(queue=admin.Queue(name="q", durable=True)))
        for key in ("c", "a", "", "b"):
            binding = admin.Binding(source="amq.topic", destination="q", routing_key=key)
            await call(world, "Bind", admin.BindRequest(binding=binding))
        keys, token = [], ""
        while True:
            request = admin.ListBindingsRequest(source="amq.topic", page_size=3, page_token=token)
            page = await call(world, "ListBindings", request)
            keys.append([binding.routing_key for binding in page.bindings])
            token = page.next_page_token
            if not token:
                break
        assert keys == [["", "a", "b"], ["c"]]
        for token in ("?", "after:", "after:1", "after:[]", 'after:["a", 1, "", "", ""]', "after:" + "[" * 100_000):
            code, _ = await call(world, "ListBindings", admin.ListBindingsRequest(page_token=token))
            assert code == INVALID_ARGUMENT

    play(scenario)


def test_a_foreign_page_token_is_refused():
    async def scenario(world):
        code, message = await call(world, "ListQueues", admin.ListQueuesRequest(page_token="?"))
        assert code == INVALID_ARGUMENT
        assert "page token" in message

    play(scenario)


def test_one_queue_can_be_looked_at():
    async def scenario(world):
        await call(world, "DeclareQueue", declare("jobs"))
        found = await call(world, "ListQueues", admin.ListQueuesRequest(name="jobs"))
        assert [queue.name for queue in found.queues] == ["jobs"]
        code, _ = await call(world, "ListQueues", admin.ListQueuesRequest(name="none"))
        assert code == NOT_FOUND

    play(scenario)


def test_a_listing_has_the_arguments_with_what_policies_add_and_the_policies_names():
    async def scenario(world):
        for name, pattern, keys, is_operator in (
            ("p", "^jobs$", {"max-length": 9, "message-ttl": 7}, False),
            ("o", ".*", {"max-length": 3}, True),
        ):
            policy = admin.Policy(name=name, pattern=pattern, apply_to="queues")
            for key, value in keys.items():
                policy.definition[key].int_value = value
            await call(world, "SetPolicy", admin.SetPolicyRequest(policy=policy, operator=is_operator))
        request = declare("jobs")
        request.queue.arguments["x-max-length"].int_value = 5
        await call(world, "DeclareQueue", request)
        await call(world, "DeclareQueue", declare("other"))

        def seen(queue):
            return {key: value.int_value for key, value in queue.effective_arguments.items()}

        for _ in range(2):
            jobs, other = (await call(world, "ListQueues", admin.ListQueuesRequest())).queues
            assert (jobs.policy, jobs.operator_policy) == ("p", "o")
            assert seen(jobs) == {"x-max-length": 3, "x-message-ttl": 7}
            assert jobs.arguments["x-max-length"].int_value == 5
            assert (other.policy, other.operator_policy, seen(other)) == ("", "o", {"x-max-length": 3})
        (jobs,) = (await call(world, "ListQueues", admin.ListQueuesRequest(name="jobs"))).queues
        assert seen(jobs) == {"x-max-length": 3, "x-message-ttl": 7}

    play(scenario)


def test_a_vhost_has_a_default_queue_type():
    async def scenario(world):
        async def types():
            found = await call(world, "ListVhosts", admin.ListVhostsRequest())
            return {vhost.name: vhost.default_queue_type for vhost in found.vhosts}

        request = admin.CreateVhostRequest(name="blue", default_queue_type="quorum")
        assert (await call(world, "CreateVhost", request)).created
        assert await types() == {"/": "classic", "blue": "quorum"}
        stream = admin.CreateVhostRequest(name="blue", default_queue_type="stream")
        assert not (await call(world, "CreateVhost", stream)).created
        await call(world, "CreateVhost", admin.CreateVhostRequest(name="blue"))
        assert await types() == {"/": "classic", "blue": "stream"}
        change = admin.SetDefaultQueueTypeRequest(name="/", default_queue_type="quorum")
        await call(world, "SetDefaultQueueType", change)
        assert (await types())["/"] == "quorum"

        await call(world, "DeclareQueue", declare("jobs"))
        (jobs,) = (await call(world, "ListQueues", admin.ListQueuesRequest())).queues
        assert jobs.arguments["x-queue-type"].string_value == "quorum"
        odd = admin.SetDefaultQueueTypeRequest(name="/", default_queue_type="odd")
        assert (await call(world, "SetDefaultQueueType", odd))[0] == INVALID_ARGUMENT
        assert (await call(world, "SetDefaultQueueType", change, user="reader"))[0] == PERMISSION_DENIED
        bad = admin.CreateVhostRequest(name="green", default_queue_type="odd")
        assert (await call(world, "CreateVhost", bad))[0] == INVALID_ARGUMENT
        assert "green" not in await types()

    play(scenario)


def test_a_binding_is_made_listed_and_taken_away():
    async def scenario(world):
        await call(world, "DeclareQueue", declare("q"))
        binding = admin.Binding(source="amq.headers", destination="q", routing_key="k")
        binding.arguments["x-match"].string_value = "any"
        binding.arguments["n"].int_value = 7
        await call(world, "Bind", admin.BindRequest(binding=binding))

        found = await call(world, "ListBindings", admin.ListBindingsRequest(source="amq.headers"))
        assert [(one.destination, one.arguments["n"].int_value) for one in found.bindings] == [("q", 7)]
        assert found.bindings[0].destination_kind == admin.DESTINATION_KIND_QUEUE

        await call(world, "Unbind", admin.UnbindRequest(binding=binding))
        found = await call(world, "ListBindings", admin.ListBindingsRequest())
        assert list(found.bindings) == []

    play(scenario)


def test_an_unknown_kind_of_destination_is_refused():
    async def scenario(world):
        binding = admin.Binding(source="amq.direct", destination="q", destination_kind=9)  # type: ignore[arg-type]
        code, _ = await call(world, "Bind", admin.BindRequest(binding=binding))
        assert code == INVALID_ARGUMENT

    play(scenario)


def test_an_exchange_is_declared_redeclared_and_deleted():
    async def scenario(world):
        exchange = admin.Exchange(name="logs", type="topic", durable=True)
        await call(world, "DeclareExchange", admin.DeclareExchangeRequest(exchange=exchange))
        forgotten = world.listener.forget_count
        await call(world, "DeclareExchange", admin.DeclareExchangeRequest(exchange=exchange))
        assert world.listener.forget_count == forgotten

        exchange.type = "fanout"
        code, message = await call(world, "DeclareExchange", admin.DeclareExchangeRequest(exchange=exchange))
        assert code == FAILED_PRECONDITION
        assert "topic" in message
        assert "fanout" in message

        await call(world, "DeleteExchange", admin.DeleteExchangeRequest(name="logs"))
        passive = admin.DeclareExchangeRequest(exchange=exchange, passive=True)
        assert (await call(world, "DeclareExchange", passive))[0] == NOT_FOUND
        assert world.listener.forget_count > forgotten

    play(scenario)


def test_an_exclusive_queue_goes_with_its_connection():
    async def scenario(world):
        await call(world, "DeclareQueue", declare("mine", exclusive=True), connection=7)
        code, _ = await call(world, "DeleteQueue", admin.DeleteQueueRequest(name="mine"), connection=8)
        assert code == FAILED_PRECONDITION

        late = FakeCall(
            method="DeclareQueue",
            payload=declare("late", exclusive=True).SerializeToString(),
            authorization=basic("admin"),
            connection=7,
        )
        world.listener.put(late, FakeCall(Disconnected(), connection=7))
        await late.result
        await all_queues_gone(world)

    play(scenario)


def test_an_unused_auto_delete_queue_goes():
    async def scenario(world):
        await call(world, "DeclareQueue", declare("temp", auto_delete=True))
        world.listener.put(
            FakeCall(QueueUnused(vhost="/", queue="temp", queue_id=1)),
            FakeCall(QueueUnused(vhost="gone", queue="x", queue_id=1)),
        )
        await all_queues_gone(world)

    play(scenario)


@pytest.mark.parametrize(
    ("method", "request_"),
    [
        ("CreateVhost", admin.CreateVhostRequest(name="blue")),
        ("DeleteVhost", admin.DeleteVhostRequest(name="/")),
        ("PutUser", admin.PutUserRequest(name="eve", tags=["administrator"])),
        ("DeleteUser", admin.DeleteUserRequest(name="admin")),
        ("SetPermission", admin.SetPermissionRequest(permission=admin.Permission(user="reader", configure=".*"))),
        ("DeletePermission", admin.DeletePermissionRequest(user="admin", vhost="/")),
        ("ExportDefinitions", admin.ExportDefinitionsRequest()),
        ("ExportDefinitions", admin.ExportDefinitionsRequest(vhost="/")),
        ("ImportDefinitions", admin.ImportDefinitionsRequest(json=b"{}")),
        ("DeclareQueue", declare("q")),
        ("Bind", admin.BindRequest(binding=admin.Binding(source="amq.direct", destination="q"))),
        ("PurgeQueue", admin.PurgeQueueRequest(name="closed")),
    ],
)
@pytest.mark.parametrize("user", ["reader", "outsider"])
def test_what_a_user_may_not_is_refused(method, request_, user):
    async def scenario(world):
        code, _ = await call(world, method, request_, user=user)
        assert code == PERMISSION_DENIED

    play(scenario)


def test_users_without_the_tag_see_themselves_alone():
    async def scenario(world):
        seen = await call(world, "ListUsers", admin.ListUsersRequest(), user="reader")
        assert [user.name for user in seen.users] == ["reader"]
        held = await call(world, "ListPermissions", admin.ListPermissionsRequest(), user="reader")
        assert [(one.user, one.vhost, one.read) for one in held.permissions] == [("reader", "/", "open.*")]
        hidden = await call(world, "ListVhosts", admin.ListVhostsRequest(), user="outsider")
        assert list(hidden.vhosts) == []

    play(scenario)


def test_permissions_are_listed_narrowed_and_cleared():
    async def scenario(world):
        wanted = admin.Permission(user="outsider", vhost="", configure="c", write="w", read="r")
        await call(world, "SetPermission", admin.SetPermissionRequest(permission=wanted))
        found = await call(world, "ListPermissions", admin.ListPermissionsRequest(user="outsider", vhost="/"))
        assert [(one.vhost, one.configure, one.write, one.read) for one in found.permissions] == [("/", "c", "w", "r")]
        await call(world, "DeletePermission", admin.DeletePermissionRequest(user="outsider"))
        code, _ = await call(world, "DeletePermission", admin.DeletePermissionRequest(user="outsider"))
        assert code == NOT_FOUND
        wanted.vhost = "nowhere"
        code, _ = await call(world, "SetPermission", admin.SetPermissionRequest(permission=wanted))
        assert code == NOT_FOUND
        assert world.listener.recheck_count == 2

    play(scenario)


def test_a_vhost_is_made_listed_and_deleted():
    async def scenario(world):
        assert (await call(world, "CreateVhost", admin.CreateVhostRequest(name="blue"))).created
        assert not (await call(world, "CreateVhost", admin.CreateVhostRequest(name="blue"))).created
        found = await call(world, "ListVhosts", admin.ListVhostsRequest())
        assert [(one.name, one.directory[:8]) for one in found.vhosts] == [("/", "42099b4a"), ("blue", "4c9a82ce")]
        await call(world, "DeleteVhost", admin.DeleteVhostRequest(name="blue"))
        assert "blue" not in world.storage.order
        assert (await call(world, "ListQueues", admin.ListQueuesRequest(vhost="blue")))[0] == NOT_FOUND

    play(scenario)


def test_a_vhost_that_has_stopped_does_not_hide_the_others():
    """Clients list the vhosts when they connect: none could connect, to any vhost."""

    async def scenario(world):
        await call(world, "CreateVhost", admin.CreateVhostRequest(name="blue"))

        def stopped():
            raise StorageError(Thing("log", "blue"), "failed: a bug", "restart the broker")

        world.storage.shards["blue"].totals = stopped

        listed = await call(world, "ListVhosts", admin.ListVhostsRequest())
        assert [vhost.name for vhost in listed.vhosts] == ["/", "blue"]

    play(scenario)


def test_definitions_are_exported_and_imported():
    async def scenario(world):
        await call(world, "DeclareQueue", declare("jobs"))
        whole = await call(world, "ExportDefinitions", admin.ExportDefinitionsRequest())
        assert [queue["name"] for queue in json.loads(whole.json)["queues"]] == ["jobs"]
        await call(world, "DeleteQueue", admin.DeleteQueueRequest(name="jobs"))

        added = await call(world, "ImportDefinitions", admin.ImportDefinitionsRequest(json=whole.json))

        assert added.added["queues"] == 1
        found = await call(world, "ListQueues", admin.ListQueuesRequest())
        assert [queue.name for queue in found.queues] == ["jobs"]
        one = await call(world, "ExportDefinitions", admin.ExportDefinitionsRequest(vhost="/"))
        assert "users" not in json.loads(one.json)

    play(scenario)


def test_the_status_is_for_all_and_the_directory_for_caretakers():
    async def scenario(world):
        status = await call(world, "GetStatus", admin.GetStatusRequest())
        assert (status.version, status.node, status.published_total) == ("1.2.3", "node-1", 11)
        assert (status.queue_count, status.ready_count, status.unacked_count) == (4, 21, 4)
        assert (status.recovery.ms, status.recovery.records) == (1.5, 7)
        assert (status.data_dir, status.data_id, status.data_format) == ("/secret/data", "some-id", 2)
        assert dict(status.listeners) == {"grpc": "h:1"}
        (corruption,) = status.corruption
        assert (corruption.vhost, corruption.file, corruption.at, list(corruption.queues)) == (
            "/",
            "msgs.0000000003",
            97,
            ["jobs"],
        )
        status = await call(world, "GetStatus", admin.GetStatusRequest(), user="outsider")
        assert (status.data_dir, status.data_id, status.data_format) == ("", "", 2)
        assert not status.corruption
        assert not status.listeners

    play(scenario)


def test_an_unknown_method_and_a_broken_message_are_the_clients_doing():
    async def scenario(world):
        result = await world.ask(FakeCall(method="Frobnicate", authorization=basic("admin")))
        assert result[1] == UNIMPLEMENTED
        result = await world.ask(FakeCall(method="DeclareQueue", payload=b"\xff", authorization=basic("admin")))
        assert result[1] == INVALID_ARGUMENT

    play(scenario)
