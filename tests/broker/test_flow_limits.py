"""Limits of users and virtual hosts on publishing and delivering, end to end.

They are set live, kept over a restart, and in definitions. A client above a rate waits; nothing is lost and no other
client waits.
"""

import json
import subprocess
import threading
import time
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command
from support.waiting import eventually

SECONDS_MAX = 60


def _add(superuser: penstock.Connection, vhost: str, *users: str) -> None:
    for user in users:
        superuser.admin.put_user(user, "secret")
        superuser.admin.set_permission(user, vhost, ".*", ".*", ".*")


def _metric(broker: Broker, name: str) -> float:
    line = next(line for line in broker.scrape().splitlines() if line.startswith(f"{name} "))
    return float(line.split()[1])


def test_a_publisher_above_its_rate_waits_and_loses_nothing(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "fast", "other")
        superuser.declare_queue("q")
        superuser.admin.set_user_limits("fast", publish_rate=100)
        pauses = _metric(broker, "penstock_publish_pauses_total")
        with penstock.connect(broker.uri(vhost, "fast", "secret")) as fast:
            began = time.monotonic()
            for _ in range(6):
                fast.publish_many([b"m"] * 50, routing_key="q")
            took = time.monotonic() - began

        assert took > 1.5  # 100 at once, 200 more at 100 a second but for the last round; slower is no error
        assert superuser.admin.list_queues()[0].ready_count == 300
        assert _metric(broker, "penstock_publish_pauses_total") > pauses
        superuser.admin.set_user_limits("fast")
        assert superuser.admin.get_user_limits("fast").publish_rate is None


def test_a_paused_publisher_goes_on_when_the_limit_is_lifted(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser, penstock.connect(broker.uri(vhost)) as publisher:
        superuser.declare_queue("q")
        superuser.admin.set_vhost_limits(publish_bytes_rate=1)
        publisher.publish(b"x" * 10_000, routing_key="q")  # some three hours' worth
        done = threading.Event()

        def publish() -> None:
            publisher.publish(b"y", routing_key="q")
            done.set()

        waiting = threading.Thread(target=publish)
        waiting.start()
        eventually(lambda: superuser.admin.get_vhost_limits().publish_bytes_rate, 1)
        assert not done.wait(0.5)

        superuser.admin.set_vhost_limits()

        assert done.wait(SECONDS_MAX)
        waiting.join()


def test_others_are_not_paused_by_a_user_above_their_rate(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "loud", "quiet")
        superuser.declare_queue("q")
        superuser.admin.set_user_limits("loud", publish_rate=1)
        loud = penstock.connect(broker.uri(vhost, "loud", "secret"))
        loud.publish_many([b"m"] * 1_000, routing_key="q")  # paused for long after this round
        try:
            with penstock.connect(broker.uri(vhost, "quiet", "secret")) as quiet:
                quiet.publish_many([b"m"] * 1_000, routing_key="q")
            assert superuser.admin.list_queues()[0].ready_count == 2_000
        finally:
            loud.close()
            superuser.admin.set_user_limits("loud")


def test_a_message_above_a_user_s_limit_is_refused_by_name(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "small")
        superuser.admin.set_user_limits("small", message_bytes_max=10)
        with penstock.connect(broker.uri(vhost, "small", "secret")) as small:
            with pytest.raises(
                penstock.PenstockError, match="11 bytes is larger than max-message-bytes of user 'small'"
            ):
                small.publish(b"x" * 11, routing_key="q")
            superuser.admin.set_user_limits("small", message_bytes_max=11)
            small.declare_queue("q")
            small.publish(b"x" * 11, routing_key="q")
        superuser.admin.set_user_limits("small")


def test_streams_above_a_user_s_number_are_refused(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "few")
        superuser.declare_queue("q")
        superuser.admin.set_user_limits("few", streams_max=1)
        with penstock.connect(broker.uri(vhost, "few", "secret")) as few:
            few.publish(b"m", routing_key="q")
            with (
                pytest.raises(penstock.PenstockError, match="user 'few' has 1 streams open, as many as it may"),
                few.consume("q", idle_timeout=SECONDS_MAX) as deliveries,
            ):
                next(iter(deliveries))
        superuser.admin.set_user_limits("few")


def test_connections_of_a_user_are_counted_from_their_first_call(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "lone")
        superuser.admin.set_user_limits("lone", connections_max=1)
        with penstock.connect(broker.uri(vhost, "lone", "secret")) as first:
            first.admin.list_queues()
            assert superuser.admin.get_user_limits("lone").connection_count == 1
            with pytest.raises(penstock.PenstockError, match="would exceed the limit of 1 that may be open"):
                penstock.connect(broker.uri(vhost, "lone", "secret"))
        eventually(lambda: superuser.admin.get_user_limits("lone").connection_count, 0, SECONDS_MAX)
        superuser.admin.set_user_limits("lone")


def test_an_administrator_may_lift_a_limit_that_locks_them_out(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        superuser.admin.put_user("root", "secret", ["administrator"])
        superuser.admin.set_permission("root", vhost, ".*", ".*", ".*")
        superuser.admin.set_user_limits("root", connections_max=0)
        with penstock.connect(broker.uri(vhost, "root", "secret")) as root:
            root.declare_queue("q")
            with pytest.raises(penstock.PenstockError, match="would exceed the limit of 0"):
                root.publish(b"m", routing_key="q")
            root.admin.set_user_limits("root")
            root.publish(b"m", routing_key="q")
        superuser.admin.delete_user("root")


def test_a_consumer_gets_no_more_than_may_be_in_flight_until_it_settles(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        superuser.declare_queue("q")
        superuser.publish_many([b"x" * 100_000] * 20, routing_key="q")
        superuser.admin.set_vhost_limits(in_flight_bytes_max=250_000)
        with superuser.consume("q", idle_timeout=4) as deliveries:
            held = list(deliveries)
            assert 3 <= len(held) < 10  # at most one response more than what fits
            for message in held:
                message.ack()
            rest = next(iter(deliveries))
            rest.ack()
        assert _metric(broker, "penstock_delivery_pauses_total") > 0
        superuser.admin.set_vhost_limits()


def test_limits_of_users_are_kept_over_a_restart_and_in_definitions(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as superuser:
            superuser.admin.put_user("lena", "secret")
            superuser.admin.set_user_limits("lena", publish_rate=7, streams_max=3)
            superuser.admin.set_vhost_limits(message_bytes_max=5)
        broker.kill()
        broker.start()
        with penstock.connect(broker.uri()) as superuser:
            found = superuser.admin.get_user_limits("lena")
            assert (found.publish_rate, found.streams_max, found.connections_max) == (7, 3, None)
            with pytest.raises(penstock.PenstockError, match="max-message-bytes of vhost '/'"):
                superuser.publish(b"123456", routing_key="q")
            exported = json.loads(superuser.admin.export_definitions())
            lena = next(user for user in exported["users"] if user["name"] == "lena")
            assert lena["limits"] == {"publish-rate": 7, "max-channels": 3}
            superuser.admin.set_user_limits("lena")
            lena["limits"] = {"max-connections": 4, "max-channels": -1}
            superuser.admin.import_definitions(json.dumps(exported).encode())
            assert superuser.admin.get_user_limits("lena").connections_max == 4
            assert superuser.admin.get_user_limits("lena").streams_max is None
            superuser.admin.delete_user("lena")
            assert superuser.admin.get_user_limits("lena").connections_max is None


def test_the_command_line_sets_and_shows_limits(broker: Broker, vhost: str) -> None:
    def run(*arguments: str) -> str:
        command = [penstock_command(), *arguments, "--uri", broker.uri(vhost), "--output", "json"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS_MAX).stdout

    shown = json.loads(run("user", "limits", "nobody", "--publish-rate", "10", "--streams-max", "2"))
    assert (shown["publish_rate"], shown["streams_max"]) == (10, 2)
    assert json.loads(run("user", "limits", "nobody", "--clear"))["publish_rate"] is None
    assert json.loads(run("vhost", "limits", vhost, "--in-flight-bytes-max", "9"))["in_flight_bytes_max"] == 9
    run("vhost", "limits", vhost, "--clear")


def test_a_paused_consumer_takes_nothing_from_one_that_waits(broker: Broker, vhost: str) -> None:
    with penstock.connect(broker.uri(vhost)) as superuser:
        _add(superuser, vhost, "full", "idle")
        superuser.admin.set_user_limits("full", in_flight_bytes_max=50_000)
        superuser.declare_queue("large")
        superuser.declare_queue("jobs")
        superuser.publish(b"x" * 100_000, routing_key="large")
        bodies = [b"%d" % number for number in range(10)]
        with penstock.connect(broker.uri(vhost, "full", "secret")) as full:
            large = iter(full.consume("large", idle_timeout=SECONDS_MAX))
            held = next(large)
            paused = iter(full.consume("jobs", idle_timeout=SECONDS_MAX))
            with penstock.connect(broker.uri(vhost, "idle", "secret")) as idle:
                waiting = iter(idle.consume("jobs", idle_timeout=10))
                eventually(lambda: superuser.admin.get_queue("jobs").consumer_count, 2, SECONDS_MAX)
                for body in bodies:
                    superuser.publish(body, routing_key="jobs")
                assert [next(waiting).body for _ in bodies] == bodies

            held.ack()
            assert [next(paused).body for _ in bodies] == bodies
        superuser.admin.set_user_limits("full")
