"""Export and import of definitions."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.metadata.commands import DeclareExchange, DeclareQueue, DeclareStream, SetPolicy
from penstock.model.arguments import Arguments, Decimal, Timestamp
from penstock.model.errors import AccessRefusedError, InvalidArgumentError, NotFoundError, PreconditionFailedError
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.vhost import definitions
from penstock.vhost.definitions import export_definitions, export_vhost
from penstock.vhost.definitions_json import read_definitions
from penstock.vhost.vhosts import Vhosts
from support.definitions_users_fake import FakeUsers, import_definitions
from support.vhost_fakes import FakeStorage, Tasks, rights

BLUE = VhostName("blue")
ODD: Arguments = {
    "bytes": b"\x00\xff",
    "time": Timestamp(7),
    "decimal": Decimal(2, 314),
    "float": float("inf"),
    "whole": 1.0,
    "number": 1,
    "nothing": None,
    "list": [True, {"deep": b"x"}],
}
THEIR_TOPIC = {"user": "anna", "vhost": "blue", "exchange": "amq.topic", "write": "^{username}-.*$", "read": "x"}
ADDED = ("vhosts", "users", "permissions", "topic_permissions", "exchanges", "queues", "bindings")


class World:
    def __init__(self) -> None:
        self.tasks = Tasks()
        self.users = FakeUsers()
        self.storage = FakeStorage()
        self.vhosts = Vhosts(self.storage, self.tasks.spawn, lambda: "0123456789abcdefghijkl")

    async def fill(self) -> None:
        await self.vhosts.make(BLUE)
        vhost = self.vhosts.get(BLUE)
        await vhost.declare_exchange(rights(), DeclareExchange(ExchangeName("x"), "topic", arguments=ODD))
        await vhost.declare_queue(rights(), queue("a", arguments={"x-durability": "disk", **ODD}))
        await vhost.declare_queue(rights(), queue(""))
        await vhost.declare_queue(rights(), queue("fleeting", durable=False))
        await vhost.declare_queue(rights(), queue("mine", exclusive=True))
        for name in ("a", "fleeting"):
            key = RoutingKey("web.#")
            await vhost.bind(rights(), Binding(ExchangeName("x"), DestinationKind.QUEUE, QueueName(name), key, ODD))
        await vhost.bind(rights(), Binding(ExchangeName("amq.topic"), DestinationKind.EXCHANGE, ExchangeName("x")))
        self.users.users.append({"name": "anna"})
        self.users.permissions.append({"user": "anna", "vhost": "blue"})

    async def take(self, document: dict[str, Any] | bytes, into: VhostName | None = None) -> dict[str, int]:
        text = document if isinstance(document, bytes) else json.dumps(document).encode()
        return await import_definitions(self.vhosts, self.users, rights(), text, into)


def queue(name: str, arguments: Arguments | None = None, **flags: bool) -> DeclareQueue:
    return DeclareQueue(QueueName(name), ConnectionId(0), arguments=arguments or {}, **flags)  # type: ignore[arg-type]


def play(scenario: Callable[[World, World], Awaitable[None]]) -> None:
    """Run a scenario with two brokers."""

    async def run() -> None:
        one, other = World(), World()
        await scenario(one, other)
        await one.tasks.end()
        await other.tasks.end()

    asyncio.run(run())


def test_an_export_round_trips_into_an_empty_broker() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()
        exported = await export_definitions(one.vhosts, one.users, rights(), "1.0")

        added = await other.take(exported)

        assert added == {
            "vhosts": 1,
            "users": 1,
            "permissions": 1,
            "topic_permissions": 0,
            "exchanges": 1,
            "queues": 2,
            "bindings": 2,
            "policies": 0,
        }
        assert await export_definitions(other.vhosts, other.users, rights(), "1.0") == exported

    play(scenario)


def test_an_export_holds_durable_things_only_and_nothing_predeclared() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()

        document = json.loads(await export_definitions(one.vhosts, one.users, rights(), "1.0"))

        assert [item["name"] for item in document["queues"]] == ["a", "amq.gen-0123456789abcdefghijkl"]
        assert [item["name"] for item in document["exchanges"]] == ["x"]
        assert {item["vhost"] for key in ("queues", "exchanges", "bindings") for item in document[key]} == {"blue"}
        assert document["penstock_version"] == "1.0"

    play(scenario)


def test_importing_again_adds_nothing() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()
        exported = await export_definitions(one.vhosts, one.users, rights(), "1.0")
        entries_before = len(one.storage.definitions[BLUE].entries)

        added = await one.take(exported)

        assert set(added.values()) == {0}
        assert len(one.storage.definitions[BLUE].entries) == entries_before

    play(scenario)


def test_one_vhosts_export_can_be_imported_into_another() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()
        exported = await export_vhost(one.vhosts.get(BLUE), rights(), "1.0")
        assert b"anna" not in exported
        assert '"vhost"' not in exported.decode()
        await other.vhosts.make(VhostName("red"))

        added = await other.take(exported, VhostName("red"))

        assert added["queues"] == 2
        assert len(await other.vhosts.get(VhostName("red")).list_queues(rights())) == 2

    play(scenario)


def test_the_default_queue_type_is_exported_and_imported_and_counts_for_no_imported_queue() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.vhosts.create(rights(), "blue", default_queue_type="quorum")
        await one.vhosts.get(BLUE).declare_queue(rights(), queue("new"))
        await one.take({"queues": [{"name": "old", "vhost": "blue", "type": "classic", "arguments": {}}]})
        exported = await export_definitions(one.vhosts, one.users, rights(), "1.0")
        default = {"default_queue_type": "quorum"}
        assert json.loads(exported)["vhosts"] == [{"name": "blue", **default, "metadata": default}]

        await other.take(exported)

        found = await other.vhosts.get(BLUE).list_queues(rights())
        assert [status.queue.kind.value for status in found] == ["quorum", "classic"]
        assert other.vhosts.get(BLUE).default_queue_type.value == "quorum"
        assert await export_definitions(other.vhosts, other.users, rights(), "1.0") == exported

    play(scenario)


@pytest.mark.parametrize(
    ("written", "kind"),
    [
        ({"default_queue_type": "stream"}, "stream"),
        ({"metadata": {"default_queue_type": "quorum"}}, "quorum"),
        ({"default_queue_type": "undefined", "metadata": {"description": ""}}, "classic"),
    ],
)
def test_the_default_queue_type_of_rabbitmq_s_export_of_one_vhost_is_read(written: dict[str, Any], kind: str) -> None:
    async def scenario(one: World, other: World) -> None:
        await one.vhosts.make(BLUE)

        await one.take(written, BLUE)
        with pytest.raises(InvalidArgumentError, match="vhost 'blue': the default queue type 'mqtt' is not supported"):
            await one.take({"default_queue_type": "mqtt"}, BLUE)

        assert one.vhosts.get(BLUE).default_queue_type.value == kind
        exported = await export_vhost(one.vhosts.get(BLUE), rights(), "1.0")
        await other.vhosts.make(BLUE)
        assert await other.take(exported, BLUE)
        assert other.vhosts.get(BLUE).default_queue_type.value == kind

    play(scenario)


def test_a_mismatch_refuses_everything_before_anything_is_changed() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()

        with pytest.raises(PreconditionFailedError, match="queue 'a' in vhost 'blue' already exists with durable true"):
            await one.take(
                {
                    "vhosts": [{"name": "red"}],
                    "queues": [
                        {"name": "new", "vhost": "blue"},
                        {"name": "a", "vhost": "blue", "durable": False},
                    ],
                }
            )
        assert one.vhosts.names() == ["blue"]
        with pytest.raises(NotFoundError):
            await one.vhosts.get(BLUE).queue_status(rights(), QueueName("new"))

    play(scenario)


def test_what_cannot_be_honoured_is_listed_and_nothing_is_changed() -> None:
    async def scenario(one: World, other: World) -> None:
        with pytest.raises(InvalidArgumentError) as refused:
            await one.take(
                {
                    "vhosts": [{"name": "blue", "limits": [{"max-queues": 3}, "odd"]}],
                    "users": [{"name": "bad"}],
                    "policies": [
                        {"name": "ha-all", "vhost": "blue"},
                        {
                            "name": "ours",
                            "vhost": "blue",
                            "pattern": "^(?!amq).*",
                            "definition": {"durability": "disk"},
                        },
                    ],
                    "parameters": [{"name": "my-shovel", "component": "shovel"}],
                    "global_parameters": [{"name": "cluster_name", "value": "c"}, {"name": "odd", "value": 1}],
                    "queues": [
                        {"name": "a", "vhost": "blue", "arguments": {"x-max-age": "7D"}},
                        {"name": "b", "vhost": "blue", "type": "mqtt"},
                        {"name": "", "vhost": "blue"},
                        {"name": "c", "vhost": "nowhere"},
                        {"name": "d", "vhost": "blue", "durable": "yes"},
                        {"name": "e", "vhost": "blue", "colour": "red"},
                    ],
                    "exchanges": [{"name": "amq.odd", "vhost": "blue", "type": "direct"}],
                    "bindings": [
                        {"source": "lost", "vhost": "blue", "destination": "c", "routing_key": ""},
                        {
                            "source": "amq.headers",
                            "vhost": "blue",
                            "destination": "amq.topic",
                            "destination_type": "exchange",
                            "routing_key": "",
                            "arguments": {"x-match": "some"},
                        },
                        {"source": "amq.topic", "vhost": "blue", "routing_key": ""},
                    ],
                    "surprise": [],
                }
            )
        for problem in (
            "vhost 'blue': limits must be an object such as",
            "user 'bad' is bad",
            "policies: policy 'ha-all' in vhost 'blue' has a field that is missing",
            "policies: policy 'ours' has the pattern '^(?!amq).*', which has the look-around `(?!`",
            "parameters: 'my-shovel' is not supported yet",
            "global_parameters: 'odd' is not supported yet",
            "'x-max-age' that only streams support",
            "queue 'b': the type 'mqtt' is not supported yet",
            "is a queue without a name",
            "vhost 'nowhere' is used but does not exist, and is not in the file",
            "object 'd' has a 'durable' that is neither true nor false",
            "'e' has an unknown key 'colour'",
            "exchange 'amq.odd' in vhost 'blue' has a name that starts with 'amq.'",
            "exchange 'lost' in vhost 'blue' not found",
            "argument 'x-match' whose value 'some' is not valid",
            "object 'amq.topic' needs a string for 'destination'",
            "'surprise' is unknown",
        ):
            assert problem in str(refused.value)
        assert "cluster_name" not in str(refused.value)
        assert one.vhosts.names() == []
        assert one.users.users == []

    play(scenario)


def test_a_text_that_contradicts_itself_is_a_mismatch() -> None:
    async def scenario(one: World, other: World) -> None:
        with pytest.raises(PreconditionFailedError, match="already exists with durable true"):
            await one.take(
                {
                    "vhosts": [{"name": "blue"}],
                    "queues": [{"name": "a", "vhost": "blue"}, {"name": "a", "vhost": "blue", "durable": False}],
                }
            )
        assert one.vhosts.names() == []

    play(scenario)


def test_a_long_list_of_problems_is_cut() -> None:
    async def scenario(one: World, other: World) -> None:
        with pytest.raises(InvalidArgumentError, match="and 80 more"):
            await one.take({"policies": [{"name": f"p{index}"} for index in range(100)]})

    play(scenario)


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", "line 1, column 1"),
        (b'{\n "queues": [}', "line 2, column 13"),
        (b"[]", "not a JSON object"),
        (b"\xff", "is not JSON"),
        (b"[" * 200_000, "is not JSON"),
        (b'{"queues": [1]}', "'queues' is not a list"),
        (b'{"queues": 7}', "'queues' is not a list"),
        (b'{"queues": {"a": 1}}', "'queues' is not a list"),
    ],
)
def test_a_text_that_is_no_definitions_is_refused_with_its_place(text: bytes, rule: str) -> None:
    async def scenario(one: World, other: World) -> None:
        with pytest.raises(InvalidArgumentError, match=rule):
            await one.take(text)

    play(scenario)


def test_an_export_of_rabbitmq_is_understood() -> None:
    document = {
        "rabbit_version": "4.1.0",
        "rabbitmq_version": "4.1.0",
        "product_name": "RabbitMQ",
        "product_version": "4.1.0",
        "rabbitmq_definition_format": "cluster",
        "original_cluster_name": "rabbit@host",
        "explanation": "Definitions of cluster 'rabbit@host'",
        "users": [{"name": "anna", "password_hash": "", "tags": ["administrator"]}],
        "vhosts": [
            {
                "name": "blue",
                "description": "Default virtual host",
                "metadata": {"description": "Default virtual host", "tags": [], "default_queue_type": "classic"},
                "tags": [],
                "default_queue_type": "classic",
            }
        ],
        "permissions": [{"user": "anna", "vhost": "blue", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [THEIR_TOPIC],
        "parameters": [],
        "global_parameters": [{"name": "cluster_tags", "value": []}, {"name": "internal_cluster_id", "value": "x"}],
        "policies": [],
        "queues": [
            {
                "name": "a",
                "vhost": "blue",
                "durable": True,
                "auto_delete": False,
                "type": "classic",
                "arguments": {"x-queue-type": "classic"},
            }
        ],
        "exchanges": [
            {
                "name": "x",
                "vhost": "blue",
                "type": "headers",
                "durable": True,
                "auto_delete": False,
                "internal": False,
                "arguments": {},
            },
            {"name": "", "vhost": "blue", "type": "direct", "durable": True},
            {"name": "amq.topic", "vhost": "blue", "type": "topic", "durable": True},
        ],
        "bindings": [
            {
                "source": "x",
                "vhost": "blue",
                "destination": "a",
                "destination_type": "queue",
                "routing_key": "",
                "arguments": {"x-match": "any", "format": "pdf"},
            },
            {"source": "", "vhost": "blue", "destination": "a", "destination_type": "queue", "routing_key": "a"},
        ],
    }

    async def scenario(one: World, other: World) -> None:
        added = await one.take(document)

        counts = dict.fromkeys(ADDED, 1)
        (topic,) = one.users.export_topics()
        assert (topic["write"], topic["read"]) == ("{username}-.*", ".*(?:x).*")
        assert added == {**counts, "policies": 0}
        assert one.storage.shards[BLUE].route("x", "", {"format": "pdf"}) == ["a"]

    play(scenario)


def test_only_administrators_export_and_import() -> None:
    async def scenario(one: World, _other: World) -> None:
        await one.fill()
        developer = rights(admin=False)
        for attempt, subject in (
            (lambda: export_definitions(one.vhosts, one.users, developer, "1.0"), "definitions 'export'"),
            (lambda: export_vhost(one.vhosts.get(BLUE), developer, "1.0"), "definitions 'export'"),
            (lambda: import_definitions(one.vhosts, one.users, developer, b"{}"), "definitions 'import'"),
        ):
            with pytest.raises(AccessRefusedError, match=f"^access to {subject} refused .* administrator"):
                await attempt()

    play(scenario)


def test_users_cannot_hide_in_the_import_of_one_vhost() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.fill()
        with pytest.raises(InvalidArgumentError, match="cannot be imported into one vhost"):
            await one.take({"users": [{"name": "eve"}]}, BLUE)
        with pytest.raises(NotFoundError):
            await one.take({}, VhostName("red"))

    play(scenario)


def test_an_import_shares_syncs() -> None:
    async def scenario(one: World, other: World) -> None:
        queues = [{"name": f"q{index}", "vhost": "blue"} for index in range(2_000)]
        await one.take({"vhosts": [{"name": "blue"}], "queues": queues})

        assert len(one.storage.definitions[BLUE].batches) <= 4

    play(scenario)


def test_stream_queues_of_rabbitmq_come_in_with_what_is_about_its_files_and_replicas() -> None:
    async def scenario(one: World, other: World) -> None:
        arguments = {
            "x-queue-type": "stream",
            "x-max-age": "7D",
            "x-max-length-bytes": 20_000_000_000,
            "x-stream-max-segment-size-bytes": 100_000_000,
            "x-initial-cluster-size": 3,
            "x-queue-leader-locator": "least-leaders",
        }
        queues = [{"name": "s", "type": "stream", "durable": True, "auto_delete": False, "arguments": arguments}]
        await one.vhosts.make(BLUE)

        assert (await one.take({"queues": queues}, BLUE))["queues"] == 1

        (status,) = await one.vhosts.get(BLUE).list_queues(rights())
        assert status.queue.arguments == arguments

    play(scenario)


def test_a_partitioned_stream_travels_whole() -> None:
    async def scenario(one: World, other: World) -> None:
        await one.vhosts.make(BLUE)
        await one.vhosts.get(BLUE).streams.declare(rights(), DeclareStream("clicks", 3, {"x-max-age": "1h"}))
        exported = await export_definitions(one.vhosts, one.users, rights(), "1.0")

        await other.take(exported)

        (status,) = await other.vhosts.get(BLUE).streams.statuses(rights())
        assert [partition.name for partition in status.partitions] == ["clicks-0", "clicks-1", "clicks-2"]
        assert await export_definitions(other.vhosts, other.users, rights(), "1.0") == exported

    play(scenario)


def test_another_broker_s_patterns_become_whole_ones_and_ours_stay() -> None:
    permission = {"user": "anna", "vhost": "/", "configure": "^a$", "write": "b", "read": ""}

    theirs = read_definitions(json.dumps({"permissions": [permission]}).encode(), None)
    ours = read_definitions(json.dumps({"penstock_version": "1", "permissions": [permission]}).encode(), None)

    assert theirs.permissions == [{**permission, "configure": "a", "write": ".*(?:b).*"}]
    assert ours.permissions == [permission]


def test_an_old_export_of_ours_means_the_same_with_its_old_names() -> None:
    """It was refused: queues had an unknown argument, policies an unknown key."""
    policy = {"name": "p", "vhost": "/", "pattern": "^q", "definition": {"level": "disk"}}
    document = {
        "queues": [{"name": "q", "vhost": "/", "arguments": {"x-level": "disk"}}],
        "policies": [policy],
        "parameters": [{"component": "operator_policy", "name": "o", "vhost": "/", "value": policy}],
    }

    ours = read_definitions(json.dumps({"penstock_version": "0.1.0", **document}).encode(), None)

    assert ours.problems == []
    assert ours.queues[0][1].arguments == {"x-durability": "disk"}
    for _, each in ours.policies:
        assert isinstance(each, SetPolicy)
        assert each.policy.definition == {"durability": "disk"}
    assert len(ours.policies) == 2
    theirs = read_definitions(json.dumps(document).encode(), None)
    assert theirs.queues[0][1].arguments == {"x-level": "disk"}


def test_what_is_not_supported_is_skipped_and_named() -> None:
    async def scenario(one: World, _: World) -> None:
        document = {
            "vhosts": [{"name": "blue"}],
            "queues": [
                {"name": "kept", "vhost": "blue", "durable": True, "auto_delete": False, "arguments": {}},
                {"name": "mqtt", "vhost": "blue", "type": "mqtt", "durable": True, "auto_delete": False},
                {"name": "ttl", "vhost": "blue", "durable": True, "arguments": {"x-max-age": "7D"}},
            ],
            "bindings": [
                {"source": "amq.fanout", "vhost": "blue", "destination": name, "destination_type": "queue"}
                | {"routing_key": "", "arguments": {}}
                for name in ("kept", "mqtt")
            ],
            "policies": [
                {"name": "idle", "vhost": "blue", "pattern": ".*", "definition": {"federation-upstream": "all"}},
                {"name": "disk", "vhost": "blue", "pattern": "^d", "definition": {"durability": "disk"}},
            ],
        }
        skipped: list[str] = []

        text = json.dumps(document).encode()
        added = await import_definitions(one.vhosts, one.users, rights(), text, None, skipped)

        assert {key: added[key] for key in ("queues", "bindings", "policies")} == {
            "queues": 1,
            "bindings": 1,
            "policies": 1,
        }
        assert len(skipped) == 4
        for name in (
            "'mqtt': the type 'mqtt'",
            "'ttl'",
            "'federation-upstream'",
            "queue 'mqtt' in vhost 'blue' not found",
        ):
            assert any(name in line for line in skipped), (name, skipped)

    play(scenario)


@pytest.mark.parametrize(
    "limits", [{"max-queues": 3, "max-connections": 9}, [{"max-queues": 3}, {"max-connections": 9}]]
)
def test_limits_beside_the_name_of_a_vhost_are_taken(limits: object) -> None:
    async def scenario(one: World, _: World) -> None:
        await one.take({"vhosts": [{"name": "blue", "limits": limits}]})

        found = one.vhosts.get(VhostName("blue")).limits
        assert (found.queues_max, found.connections_max) == (3, 9)

    play(scenario)


def test_a_difference_is_refused_also_when_what_is_not_supported_is_skipped() -> None:
    async def scenario(one: World, _: World) -> None:
        await one.fill()
        text = json.dumps({"queues": [{"name": "a", "vhost": "blue", "durable": False, "arguments": {}}]}).encode()

        with pytest.raises(PreconditionFailedError, match="differs from the broker"):
            await import_definitions(one.vhosts, one.users, rights(), text, None, [])

    play(scenario)


def test_a_document_is_read_tried_and_written_on_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """20,000 queues with bindings held up all other calls for seconds."""
    threads: dict[str, threading.Thread] = {}

    def note(name: str) -> None:
        work = getattr(definitions, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            threads[name] = threading.current_thread()
            return work(*arguments, **named)

        monkeypatch.setattr(definitions, name, noted)

    for name in ("read_definitions", "decide", "write_topology"):
        note(name)

    async def scenario(one: World, other: World) -> None:
        await one.fill()
        await other.take(await export_definitions(one.vhosts, one.users, rights(), "1.2.3"))

    play(scenario)
    assert list(threads) == ["write_topology", "read_definitions", "decide"]
    assert threading.main_thread() not in threads.values()


@pytest.mark.parametrize("kind", ["permissions", "topic_permissions"])
def test_permissions_in_a_vhost_that_does_not_exist_are_refused(kind: str) -> None:
    """A virtual host of that name, made later, inherited them."""

    async def scenario(one: World, _: World) -> None:
        document = {kind: [{**THEIR_TOPIC, "vhost": "ghost"}]}
        with pytest.raises(InvalidArgumentError, match="vhost 'ghost' is used but does not exist"):
            await one.take(document)
        assert one.users.permissions == one.users.topics == []
        await one.take({**document, "vhosts": [{"name": "ghost"}]})

    play(scenario)
