"""The data directory of a real LavinMQ 2.9.1, imported and compared with the contents that LavinMQ reported.

Exchanges, bindings and queues are from its management API, messages were drained over AMQP.
"""

import gzip
import hashlib
import json
import re
import shutil
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from struct import pack
from typing import Any
from urllib.parse import quote

import pytest

import penstock
from penstock.client.values import Timestamp
from penstock.importing.writing import Imported, import_lavinmq
from penstock.model.errors import PreconditionFailedError
from penstock.storage import directory_name
from penstock.storage.logs import inspect
from support import Broker
from support.lavinmq import message as lavin_message
from support.lavinmq import with_times_moved

GOLDEN = Path(__file__).parent.parent / "golden"
EXPECTED: dict[str, Any] = json.loads(gzip.decompress((GOLDEN / "lavinmq-2.9.1.expected.json.gz").read_bytes()))
QUEUES = [(vhost, queue) for vhost, found in EXPECTED.items() for queue in found["bodies"]]
WRITTEN_MS = int(datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp() * 1000)
"""About when LavinMQ stored the messages."""
UNKNOWN = {"x-note", "x-flag", "x-neg", "x-big", "x-list", "x-dec", "x-time"}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lavinmq")
    with tarfile.open(GOLDEN / "lavinmq-2.9.1.tgz") as archive:
        archive.extractall(path, filter="data")
    # The messages have times after which they expire, so they have to be new.
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    for segment in (path / "a").rglob("msgs.*"):
        segment.write_bytes(with_times_moved(segment.read_bytes(), now_ms - WRITTEN_MS))
    return path / "a"


def take_over(directory: Path, target: Path, *, is_partial: bool = True) -> Imported:
    return import_lavinmq(directory, target, is_partial=is_partial, on_progress=lambda _done, _total: None)


@pytest.fixture(scope="module")
def imported(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    data_dir = tmp_path_factory.mktemp("import") / "data"
    take_over(directory, data_dir)
    with Broker(data_dir) as started:
        yield started


@pytest.fixture(params=EXPECTED)
def vhost(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def connection(imported: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(imported.uri(quote(vhost, safe=""))) as opened:
        yield opened


def durable_queues(vhost: str) -> dict[str, dict[str, Any]]:
    return {name: queue for name, queue in EXPECTED[vhost]["queues"].items() if queue["durable"]}


def test_imported_queues_are_spread_over_the_shards_that_are_asked_for(directory: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    report = import_lavinmq(directory, data, is_partial=True, on_progress=lambda _done, _total: None, shard_count=3)
    segments = inspect(data, verify=True)
    assert [segment["error"] for segment in segments if segment["error"] is not None] == []
    assert sum(segment["messages"] for segment in segments) == report.message_count

    with Broker(data) as broker:
        for _ in range(2):
            for vhost, found in EXPECTED.items():
                with penstock.connect(broker.uri(quote(vhost, safe=""))) as connection:
                    counts = {queue.name: queue.ready_count for queue in connection.admin.list_queues()}
                    expected = {name: len(bodies) for name, bodies in found["bodies"].items() if name in counts}
                    assert {name: counts[name] for name in expected} == expected
            broker.kill()
            broker.start()
        with penstock.connect(broker.uri()) as connection:
            assert {vhost.shards for vhost in connection.admin.list_vhosts()} == {3}
            connection.declare_queue("late")
        places = {path.parent.name for path in data.glob("*/logs/*/msgs.*")}
    assert places == {"1", "2"}


def test_what_is_left_out_is_listed_by_name_and_refused_unless_it_is_asked_for(directory: Path, tmp_path: Path) -> None:
    assert list(take_over(directory, tmp_path / "all", is_partial=False).left_out) == []
    source = tmp_path / "source"
    shutil.copytree(directory, source)
    policies = next(source.glob("*/policies.json"))
    policies.write_text(policies.read_text().replace("dead-letter-exchange", "federation-upstream"))

    with pytest.raises(PreconditionFailedError, match="holds 1 item"):
        take_over(source, tmp_path / "refused", is_partial=False)
    assert not (tmp_path / "refused").exists()

    rule = "policy 'ttl' in vhost 'shop' sets 'federation-upstream', which is not supported yet"
    assert list(take_over(source, tmp_path / "data").left_out) == [rule]


def test_the_report_counts_what_lavinmq_counts(directory: Path, tmp_path: Path) -> None:
    report = take_over(directory, tmp_path / "data")

    queues = [queue for vhost in EXPECTED for queue in durable_queues(vhost).values()]
    assert (report.vhost_count, report.user_count, report.queue_count) == (2, 3, len(queues))
    assert report.message_count == sum(queue["messages"] for queue in queues)
    assert report.binding_count == sum(len(found["bindings"]) for found in EXPECTED.values())
    for vhost in EXPECTED:
        segments = inspect(tmp_path / "data" / directory_name(vhost), verify=True)
        assert [segment["error"] for segment in segments if segment["error"]] == []


def test_queues_have_their_arguments_and_counts(connection: penstock.Connection, vhost: str) -> None:
    wanted = {
        name: {key: value for key, value in queue["arguments"].items() if key not in UNKNOWN}
        for name, queue in durable_queues(vhost).items()
    }
    found = connection.admin.list_queues()

    assert {
        queue.name: {key: value for key, value in queue.arguments.items() if key not in UNKNOWN} for queue in found
    } == wanted
    assert all(queue.durable and not queue.auto_delete for queue in found)
    counts = {queue.name: queue.ready_count for queue in found if queue.name in EXPECTED[vhost]["bodies"]}
    assert counts == {name: len(messages) for name, messages in EXPECTED[vhost]["bodies"].items()}
    assert counts == {name: durable_queues(vhost)[name]["messages"] for name in counts}


def test_exchanges_are_the_same(connection: penstock.Connection, vhost: str) -> None:
    found = {
        exchange.name or "amq.default": [
            exchange.type,
            exchange.durable,
            exchange.auto_delete,
            exchange.internal,
            dict(exchange.arguments),
        ]
        for exchange in connection.admin.list_exchanges()
    }

    assert found == {name: exchange for name, exchange in EXPECTED[vhost]["exchanges"].items() if exchange[1]}


def test_bindings_are_the_same(connection: penstock.Connection, vhost: str) -> None:
    found = [
        {
            "source": binding.source,
            "destination": binding.destination,
            "destination_type": binding.destination_kind,
            "routing_key": binding.routing_key,
            "arguments": dict(binding.arguments),
        }
        for binding in connection.admin.list_bindings()
        if binding.source
    ]
    wanted = [
        {key: value for key, value in binding.items() if key not in {"vhost", "properties_key"}}
        for binding in EXPECTED[vhost]["bindings"]
    ]

    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize(("of", "queue"), QUEUES)
def test_every_message_is_the_same_and_in_its_order(imported: Broker, of: str, queue: str) -> None:
    wanted = EXPECTED[of]["bodies"][queue]
    with penstock.connect(imported.uri(quote(of, safe=""))) as connection:
        stream = connection.consume(queue, prefetch=len(wanted) + 1)
        found = [message for _, message in zip(wanted, stream, strict=False)]
        stream.close()

    assert [shown(message) for message in found] == wanted


def test_a_priority_queue_begins_with_the_highest_priority(connection: penstock.Connection, vhost: str) -> None:
    stream = connection.consume("prio", prefetch=1_000)
    count = durable_queues(vhost)["prio"]["messages"]
    priorities = [message.properties.priority or 0 for _, message in zip(range(count), stream, strict=False)]
    stream.close()

    assert priorities == sorted(priorities, reverse=True)
    assert set(priorities) == {5, 3, 0}


def test_a_stream_has_all_its_messages(connection: penstock.Connection, vhost: str) -> None:
    found = list(connection.stream("strm").read("first", until="next"))

    assert [message.body for message in found] == [f"s{number}".encode() for number in range(120)]
    assert [message.headers for message in found] == [{"k": number} for number in range(120)]


def test_what_is_published_afterwards_goes_where_it_went(connection: penstock.Connection, vhost: str) -> None:
    before = connection.admin.get_queue("dead").ready_count
    connection.publish(b"by two exchanges", exchange="ev", routing_key="to.dlx", mandatory=True)
    connection.publish(b"by the alternate", exchange="hd", headers={"kind": "y"}, mandatory=True)

    stream = connection.consume("dead", prefetch=1_000)
    *_, one, other = (message for _, message in zip(range(before + 2), stream, strict=False))
    assert [one.body, other.body] == [b"by two exchanges", b"by the alternate"]
    one.ack()
    other.ack()
    stream.close()


def test_users_and_permissions_are_those_of_the_directory(directory: Path, tmp_path: Path) -> None:
    take_over(directory, tmp_path / "data")
    wanted = json.loads((directory / "users.json").read_text())
    found = json.loads((tmp_path / "data" / "users.json").read_text())

    keys = ("name", "password_hash", "hashing_algorithm")
    assert [[user[key] for key in keys] for user in found] == [[user[key] for key in keys] for user in wanted]
    assert [",".join(user["tags"]) for user in found] == [user["tags"] for user in wanted]
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours["permissions"].keys() == theirs["permissions"].keys()
        for vhost, patterns in theirs["permissions"].items():
            check_means_the_same(ours["permissions"][vhost], patterns)


def check_means_the_same(ours: dict[str, str], theirs: dict[str, str]) -> None:
    """Compare patterns: LavinMQ searches a pattern anywhere in a name; here it has to match the whole name."""
    for key, name_there in (("configure", "config"), ("write", "write"), ("read", "read")):
        for name in ("", "a", "b", "ab", "ba", "c", "cab", "plain"):
            assert bool(re.fullmatch(ours[key], name)) == bool(re.search(theirs[name_there], name)), (key, name)


def test_policies_are_those_of_the_directory(connection: penstock.Connection, vhost: str, directory: Path) -> None:
    for operator, file in ((False, "policies.json"), (True, "operator_policies.json")):
        path = directory / directory_name(vhost) / file
        policies = json.loads(path.read_text()) if path.exists() else []
        assert [policy.name for policy in connection.admin.list_policies(operator=operator)] == [
            it["name"] for it in policies
        ]


def test_headers_as_only_other_clients_write_them_are_delivered(directory: Path, tmp_path: Path) -> None:
    table = b"\x01lL" + pack(">q", -2) + b"\x01uU" + pack(">h", -3) + b"\x01\xffS" + pack(">I", 1) + b"\xff"
    properties = pack("<HI", 0x2000, len(table)) + table
    shutil.copytree(directory, tmp_path / "lavinmq")
    folder = tmp_path / "lavinmq" / directory_name("shop") / directory_name("empty")
    (folder / "msgs.0000000001").write_bytes(pack("<i", 4) + lavin_message(1, "", "empty", b"x", properties))
    take_over(tmp_path / "lavinmq", tmp_path / "data")

    with Broker(tmp_path / "data") as broker, penstock.connect(broker.uri("shop")) as connection:
        message = connection.get("empty")
    assert message is not None
    assert message.headers == {"l": -2, "u": -3, "\ufffd": b"\xff"}


def shown(message: penstock.Message) -> dict[str, Any]:
    """Return a message in the form of the file of expected contents."""
    names = [name for name in type(message.properties).__dataclass_fields__ if name != "headers"]
    properties = {name: getattr(message.properties, name) for name in names}
    if message.headers:
        properties["headers"] = plain(dict(message.headers))
    return {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": False,
        "sha1": hashlib.sha1(message.body, usedforsecurity=False).hexdigest(),
        "size": len(message.body),
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return str(datetime.fromtimestamp(value, UTC)) if isinstance(value, Timestamp) else value
