"""Policies end to end: effective at once, kept over a restart, exported and imported with definitions."""

import json
import urllib.request
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.waiting import eventually


@pytest.fixture
def connection(broker: Broker, vhost: str) -> penstock.Connection:
    return penstock.connect(broker.uri(vhost))


def test_a_policy_routes_as_soon_as_it_is_set_and_no_longer_when_it_is_cleared(connection: penstock.Connection) -> None:
    connection.declare_exchange("orders", "direct")
    connection.declare_queue("lost")
    connection.bind_queue("lost", "amq.fanout")
    with pytest.raises(penstock.PenstockError):
        connection.publish(b"a", exchange="orders", routing_key="x", mandatory=True)

    connection.admin.set_policy("lost", "^orders$", {"alternate-exchange": "amq.fanout"}, "exchanges", 5)
    connection.publish(b"b", exchange="orders", routing_key="x", mandatory=True)
    connection.admin.delete_policy("lost")

    with pytest.raises(penstock.PenstockError):
        connection.publish(b"c", exchange="orders", routing_key="x", mandatory=True)
    assert connection.admin.get_queue("lost").ready_count == 1


def test_a_stream_keeps_what_a_policy_says_from_then_on(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text("segment_bytes_min = 65536\nsegment_bytes_max = 65536\n")
    with Broker(tmp_path / "data", "--config", str(file)) as own, penstock.connect(own.uri()) as connection:
        connection.declare_stream("readings")
        connection.publish_many([b"x" * 1_000] * 500, routing_key="readings")
        readings = connection.stream("readings")
        assert [each.first for each in readings.offsets()] == [1]

        connection.admin.set_policy("short", "^readings$", {"max-length-bytes": 100_000}, "streams")

        eventually(lambda: readings.offsets()[0].first > 250, True, 60)
        eventually(lambda: [message.offset for message in readings.read(from_="last", count=1)], [500], 60)


def test_a_key_that_is_not_there_yet_is_refused_by_name(connection: penstock.Connection) -> None:
    with pytest.raises(penstock.PenstockError, match="'federation-upstream', which is not supported yet"):
        connection.admin.set_policy("p", ".*", {"federation-upstream": "east"})
    assert connection.admin.list_policies() == []


def test_policymakers_set_policies_and_administrators_those_of_operators(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as root:
        root.admin.put_user("polly", "secret", ["policymaker"])
        root.admin.put_user("walter", "secret")
        for user in ("polly", "walter"):
            root.admin.set_permission(user, vhost, read=".*")
        with penstock.connect(broker.uri(vhost, "polly", "secret")) as polly:
            polly.admin.set_policy("p", ".*", {"durability": "disk"})
            with pytest.raises(penstock.AccessRefusedError):
                polly.admin.set_policy("p", ".*", {"durability": "disk"}, operator=True)
        with penstock.connect(broker.uri(vhost, "walter", "secret")) as walter:
            assert [policy.name for policy in walter.admin.list_policies()] == ["p"]
            with pytest.raises(penstock.AccessRefusedError):
                walter.admin.delete_policy("p")
        root.admin.set_policy("p", ".*", {"durability": "disk"}, operator=True)
        assert [policy.priority for policy in root.admin.list_policies(operator=True)] == [0]
        root.admin.delete_user("polly")
        root.admin.delete_user("walter")


def test_a_publisher_cannot_undercut_the_level_of_an_operator(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as own, penstock.connect(own.uri(), durability="os") as connection:
        connection.declare_queue("jobs", arguments={"x-durability": "disk"})
        connection.admin.set_policy("safe", "^jobs$", {"durability": "disk"}, operator=True)
        before = syncs(own)

        for number in range(100):
            connection.publish(b"%d" % number, routing_key="jobs")

        assert syncs(own) - before >= 100, "each confirm waited for a sync of its own"


def syncs(own: Broker) -> float:
    with urllib.request.urlopen(f"{own.health}/metrics", timeout=30) as response:
        lines = response.read().decode().splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith("penstock_syncs_total"))


def test_policies_are_there_after_a_restart_and_in_the_definitions(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as connection:
            connection.declare_queue("lost")
            connection.bind_queue("lost", "amq.fanout")
            connection.admin.set_policy("lost", "^amq.direct$", {"alternate-exchange": "amq.fanout"})
            connection.admin.set_policy("safe", ".*", {"durability": "disk"}, operator=True)
        broker.kill()
        broker.start()
        with penstock.connect(broker.uri()) as connection:
            connection.publish(b"a", exchange="amq.direct", routing_key="x", mandatory=True)
            document = connection.admin.export_definitions()
    exported = json.loads(document)
    assert [policy["apply-to"] for policy in exported["policies"]] == ["all"]
    assert [parameter["component"] for parameter in exported["parameters"]] == ["operator_policy"]

    with Broker(tmp_path / "other") as other, penstock.connect(other.uri()) as connection:
        assert connection.admin.import_definitions(document).added["policies"] == 2
        assert connection.admin.import_definitions(document).added["policies"] == 0
        assert connection.admin.list_policies(operator=True)[0].definition == {"durability": "disk"}


def test_a_broken_file_of_policies_stops_the_start_with_its_place(tmp_path: Path) -> None:
    from support.broker import BrokerError

    with Broker(tmp_path / "data") as broker:
        broker.stop()
        (path,) = (tmp_path / "data").glob("*/policies.json")
        path.write_text(json.dumps([{"name": "p", "pattern": ".*", "definition": {"federation-upstream": "east"}}]))
        with pytest.raises(
            BrokerError, match=r"is invalid at policy 'p'.*'federation-upstream', which is not supported yet"
        ):
            broker.start()
