"""State after the broker ended, cleanly or not."""

import json
import shutil
import struct
from collections.abc import Callable
from hashlib import sha1
from itertools import islice
from pathlib import Path

import pytest

import penstock
from support import Broker, BrokerError, eventually

Restart = Callable[[Broker], None]


def stopped_and_started(broker: Broker) -> None:
    broker.restart()


def killed_and_started(broker: Broker) -> None:
    broker.kill()
    broker.start()


@pytest.fixture
def own(tmp_path: Path) -> Broker:
    """Return a broker that a test starts and may stop."""
    return Broker(tmp_path / "data")


@pytest.fixture(params=[stopped_and_started, killed_and_started])
def restart(request: pytest.FixtureRequest) -> Restart:
    chosen: Restart = request.param
    return chosen


def test_durable_things_and_their_messages_are_there_again(own: Broker, restart: Restart) -> None:
    with own:
        with penstock.connect(own.uri()) as before:
            before.declare_exchange("web", "topic")
            before.declare_queue("kept")
            before.declare_queue("gone", durable=False)
            before.bind_queue("kept", "web", "web.#")
            before.publish_many([str(number).encode() for number in range(5_000)], exchange="web", routing_key="web.a")
            before.admin.put_user("walter", "secret")

        restart(own)

        with penstock.connect(own.uri()) as after:
            assert [queue.name for queue in after.admin.list_queues()] == ["kept"]
            assert "walter" in [user.name for user in after.admin.list_users()]
            arrived = [message.body for message in islice(after.consume("kept", prefetch=5_000), 5_000)]
            assert arrived == [str(number).encode() for number in range(5_000)]
            after.publish(b"new", exchange="web", routing_key="web.b")
            assert after.admin.get_queue("kept").ready_count + after.admin.get_queue("kept").unacked_count == 5_001


def test_what_was_settled_stays_settled_and_what_was_held_comes_back(own: Broker, restart: Restart) -> None:
    with own:
        with penstock.connect(own.uri()) as before:
            before.declare_queue("jobs")
            before.publish_many([b"a", b"b", b"c", b"d"], routing_key="jobs")
            taken = [before.get("jobs") for _ in range(3)]
            assert all(taken)
            for message in (taken[0], taken[2]):
                assert message is not None
                message.ack()
            assert before.admin.get_queue("jobs").unacked_count == 1

            restart(own)

        with penstock.connect(own.uri()) as after:
            found = list(islice(after.consume("jobs"), 2))
            assert [message.body for message in found] == [b"b", b"d"]
            assert found[0].redelivered


def test_a_client_goes_on_by_itself_after_a_restart(own: Broker, restart: Restart) -> None:
    with own, penstock.connect(own.uri()) as client:
        client.declare_queue("jobs")
        client.publish(b"before", routing_key="jobs")
        consumption = iter(client.consume("jobs"))
        next(consumption).ack()

        restart(own)

        client.publish(b"after", routing_key="jobs")
        # The acknowledgement may have been on its way when the broker was killed: then the first one is redelivered.
        bodies = [next(consumption).body]
        if bodies == [b"before"]:
            bodies.append(next(consumption).body)
        assert bodies[-1] == b"after"


def test_a_deleted_queue_stays_deleted_and_its_name_starts_empty(own: Broker, restart: Restart) -> None:
    with own:
        with penstock.connect(own.uri()) as before:
            before.declare_queue("jobs")
            before.publish(b"old", routing_key="jobs")
            before.delete_queue("jobs")

        restart(own)

        with penstock.connect(own.uri()) as after:
            assert after.admin.list_queues() == []
            assert after.declare_queue("jobs").ready_count == 0
            assert after.get("jobs") is None


def test_a_clean_stop_ends_with_0_and_says_so_in_the_directory(own: Broker) -> None:
    with own:
        assert not (own.data_dir / "clean").exists()

        assert own.stop() == 0

        assert (own.data_dir / "clean").exists()


def test_a_second_broker_is_refused_the_directory(own: Broker) -> None:
    with own:
        second = Broker(own.data_dir)
        with pytest.raises(BrokerError, match="in use by another broker"):
            second.start()


def test_the_directory_is_laid_out_as_documented(own: Broker) -> None:
    with own, penstock.connect(own.uri()) as client:
        client.declare_queue("jobs")
        client.publish(b"a", routing_key="jobs")
        folder = own.data_dir / sha1(b"/").hexdigest()

        assert [user["name"] for user in json.loads((own.data_dir / "users.json").read_text())] == ["guest"]
        assert [vhost["name"] for vhost in json.loads((own.data_dir / "vhosts.json").read_text())] == ["/"]
        assert (folder / ".vhost").read_text() == "/"
        assert json.loads((folder / "policies.json").read_text()) == []
        assert (folder / "msgs.0000000001").exists()
        assert_frames((folder / "definitions.amqp").read_bytes())


def assert_frames(data: bytes) -> None:
    """Check an Int32 LE version, then whole AMQP method frames, one of them the declaration of the queue."""
    assert struct.unpack_from("<i", data) == (1,)
    methods, place = [], 4
    while place < len(data):
        kind, channel, size = struct.unpack_from(">BHI", data, place)
        assert (kind, channel, data[place + 7 + size]) == (1, 0, 0xCE)
        methods.append(struct.unpack_from(">HH", data, place + 7))
        place += size + 8
    assert (50, 10) in methods


def test_a_broken_file_stops_the_start_and_is_named_with_its_line(own: Broker) -> None:
    with own:
        own.stop()
        (own.data_dir / "users.json").write_text('[\n  {"name": "guest",,}\n]')

        with pytest.raises(BrokerError, match=r"users\.json.*line 2"):
            own.start()


def test_a_user_added_by_hand_can_come_in(own: Broker) -> None:
    with own:
        own.stop()
        path = own.data_dir / "users.json"
        users = json.loads(path.read_text())
        path.write_text(json.dumps([*users, {**users[0], "name": "walter"}], indent=2))
        own.start()

        penstock.connect(own.uri(user="walter", password="guest")).close()


def test_health_and_metrics_are_served(broker: Broker) -> None:
    assert [broker.scrape(f"/health/{kind}") != "" for kind in ("startup", "ready", "live")] == [True] * 3
    with penstock.connect(broker.uri()) as client:
        client.declare_queue("counted", durable=False, exclusive=True)
        client.publish(b"a", routing_key="counted")

        eventually(lambda: "penstock_messages_published_total" in broker.scrape(), True)


def test_a_broker_that_was_emptied_and_stopped_starts_again(tmp_path: Path) -> None:
    # Successive queues are in different shards, so each shard has one. A shard that stored less than 1 MiB since its
    # older checkpoint keeps its segments, which saves the second checkpoint that their removal needs.
    queues = ("own", "shared-1", "shared-2", "shared-3")
    with Broker(tmp_path / "data") as own:
        with penstock.connect(own.uri()) as connection:
            for queue in queues:
                connection.declare_queue(queue, arguments={"x-dedicated": True} if queue == "own" else {})
                connection.publish_many([bytes(1 << 20)] * 8, routing_key=queue)
                for message in islice(connection.consume(queue), 8):
                    message.ack()
        own.stop()
        assert list(own.data_dir.glob("**/msgs.*")) == [], "or this shows nothing"

        own.start()

        with penstock.connect(own.uri()) as connection:
            for queue in queues:
                connection.publish(b"goes on", routing_key=queue, mandatory=True)
            assert {queue.name: queue.ready_count for queue in connection.admin.list_queues()} == dict.fromkeys(
                queues, 1
            )


def stopped(broker: Broker) -> None:
    broker.stop()


def killed(broker: Broker) -> None:
    broker.kill()


@pytest.mark.parametrize("end", [stopped, killed])
def test_a_start_from_a_snapshot_that_is_told_so_gives_no_number_again(own: Broker, end: Restart) -> None:
    """Follow the steps of docs/storage.md, "Recovery at a start"."""
    snapshot = own.data_dir.with_name("snapshot")
    with own:
        with penstock.connect(own.uri(), durability="os") as connection:
            connection.declare_queue("letters")
            connection.publish(b"kept", routing_key="letters")
        end(own)
        shutil.copytree(own.data_dir, snapshot)
        own.start()
        with penstock.connect(own.uri(), durability="os") as connection:
            connection.publish_many([b"lost"] * 20, routing_key="letters")
            seen = [message.sequence for message in connection.consume("letters", idle_timeout=4)]
        own.kill()
        shutil.rmtree(own.data_dir)
        snapshot.rename(own.data_dir)

        node = own.data_dir / "node.json"
        node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": ""}))
        (own.data_dir / "clean").unlink(missing_ok=True)
        own.start()

        with penstock.connect(own.uri()) as connection:
            connection.publish(b"after", routing_key="letters")
            got = {message.body: message.sequence for message in connection.consume("letters", idle_timeout=4)}

    assert len(seen) == 21
    assert got.keys() == {b"kept", b"after"}
    assert got[b"after"] > max(seen)
