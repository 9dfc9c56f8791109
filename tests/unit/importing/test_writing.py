"""Imports: accepted parts, parts left out by name, and no partial result."""

from typing import Any

import pytest

from penstock.importing.writing import import_lavinmq
from penstock.model.errors import PreconditionFailedError
from penstock.model.records import Queue
from penstock.storage import Declared, directory_name, read_users, read_vhosts
from penstock.storage.definitions_amqp import read_changes
from support.lavinmq import (
    EXCLUSIVE,
    LavinVhost,
    bound,
    exchange,
    exchange_bound,
    message,
    queue,
    write_directory,
)

USER: dict[str, Any] = {"name": "anna", "password_hash": "", "hashing_algorithm": None, "tags": "", "permissions": {}}


@pytest.fixture
def source(tmp_path):
    (tmp_path / "lavinmq").mkdir()
    write_directory(tmp_path / "lavinmq", [USER], ["/"])
    return LavinVhost(tmp_path / "lavinmq", "/")


def take(source, target=None, is_partial=False):
    steps = []
    report = import_lavinmq(
        source.path.parent, target, is_partial=is_partial, on_progress=lambda *step: steps.append(step)
    )
    assert all(done <= total for done, total in steps)
    return report


def messages(count):
    return [message(number + 1, "", "q", b"x") for number in range(count)]


def test_a_dry_run_reads_everything_and_writes_nothing(source, tmp_path):
    source.write_definitions(queue("q"))
    source.write_queue("q", messages(3))

    assert take(source).message_count == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lavinmq"]


def test_what_this_broker_does_not_do_is_left_out_by_name(source):
    source.write_definitions(
        queue("short", {"x-max-age": "7D", "x-dedicated": True, "colour": "red"}),
        queue("session", {"x-queue-type": "mqtt"}),
        exchange("late", "x-delayed-message"),
        bound("short", "late", "k"),
    )
    source.write_queue("short", messages(2))
    source.write_queue("session", messages(4))
    source.write_queue("amq.delayed.late", messages(1))
    policy = {"pattern": ".*", "apply-to": "all", "priority": 0, "definition": {"federation-upstream": "all"}}
    around = {**policy, "pattern": "^(?!amq).*", "definition": {}}
    source.write_json("policies", [{"name": "p", **policy}, {"name": "around", **around}])
    source.write_json("operator_policies", [{"name": "o", **policy}])
    source.write_json("parameters", [{"name": "s", "component": "shovel"}])
    source.write_json("limits", {"max-queues": 3, "max-colours": 1})

    report = take(source)

    text = "\n".join(report.left_out)
    for part in (
        "queue 'short' in vhost '/' has an argument 'x-max-age'",
        "queue 'short' in vhost '/' has an argument 'x-dedicated'",
        "queue 'session' in vhost '/' has an argument 'x-queue-type' whose value 'mqtt' is not supported yet",
        "exchange 'late'",
        "1 message of queue 'amq.delayed.late' in vhost '/': no queue of that name is declared",
        "policy 'p' in vhost '/' sets 'federation-upstream', which is not supported yet",
        "policy 'around' has the pattern '^(?!amq).*', which has the look-around `(?!` that is not supported",
        "operator policy 'o'",
        "parameter 's'",
        "limits of vhost '/' have 'max-colours'",
    ):
        assert part in text, part
    assert (report.queue_count, report.exchange_count, report.message_count) == (2, 0, 6)


def imported_queues(data_dir):
    path = data_dir / directory_name("/") / "definitions.amqp"
    changes, _ = read_changes(path, path.read_bytes())
    return {
        change.thing.name: change.thing.arguments
        for change in changes
        if isinstance(change, Declared) and isinstance(change.thing, Queue)
    }


def test_a_stream_keeps_its_limits(source, tmp_path):
    arguments = {"x-queue-type": "stream", "x-max-age": "7D", "x-max-length-bytes": 1_000_000}
    source.write_definitions(queue("s", arguments))

    assert take(source, tmp_path / "data").left_out == []
    assert imported_queues(tmp_path / "data") == {"s": arguments}


def test_limits_of_a_queue_are_kept_and_what_is_beyond_them_is_dead_lettered(source, tmp_path):
    limits = {"x-max-length": 5, "x-max-length-bytes": 100, "x-overflow": "reject-publish", "x-expires": 1000}
    dead = {**limits, "x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": "k", "x-message-ttl": 5}
    source.write_definitions(queue("short", limits), queue("dead", dead))

    left_out = take(source, tmp_path / "data", is_partial=True).left_out

    assert imported_queues(tmp_path / "data") == {"short": limits, "dead": dead}
    assert list(left_out) == []


def test_a_queue_whose_arguments_are_too_many_together_comes_without_them(source, tmp_path):
    one, other = {"x-queue-type": "stream", "a": ["x"] * 600}, {"b": ["x"] * 600}
    source.write_definitions(queue("s", {**one, **other}))
    source.write_queue("s", messages(3))

    report = take(source, tmp_path / "data", is_partial=True)

    assert imported_queues(tmp_path / "data") == {"s": {"x-queue-type": "stream"}}
    assert report.message_count == 3
    assert len(report.left_out) == 1
    assert "arguments 'a', 'b' of queue 's' in vhost '/'" in report.left_out[0]


def test_an_exchange_whose_arguments_contradict_each_other_comes_without_them(source):
    alternates = {"alternate-exchange": "a", "x-alternate-exchange": "b"}
    source.write_definitions(exchange("e", "topic", alternates), queue("q"), bound("q", "e", "k"))

    report = take(source)

    assert (report.exchange_count, report.binding_count) == (1, 1)
    assert len(report.left_out) == 1
    assert "arguments 'alternate-exchange', 'x-alternate-exchange' of exchange 'e'" in report.left_out[0]


def test_a_binding_to_an_exchange_named_as_a_transient_queue_comes_along(source):
    source.write_definitions(
        exchange("same", "topic"),
        queue("same", bits=0),
        exchange_bound("same", "amq.topic", "k"),
        bound("same", "amq.topic", "k"),
    )

    report = take(source)

    assert (report.left_out, report.binding_count) == ([], 1)


def test_stored_offsets_of_a_stream_are_listed(source):
    source.write_definitions(queue("s", {"x-queue-type": "stream"}), queue("t", {"x-queue-type": "stream"}))
    (source.write_queue("s", messages(1)) / "consumer_offsets").write_bytes(b"\x01c" + bytes(8))
    (source.write_queue("t", messages(1)) / "consumer_offsets").write_bytes(bytes(64))

    assert take(source).left_out == ["consumer offsets of queue 's' in vhost '/'"]


def test_a_paused_queue_is_listed(source):
    source.write_definitions(queue("q"))
    (source.write_queue("q", messages(1)) / "paused").touch()

    assert take(source).left_out == ["the pause of queue 'q' in vhost '/'"]


def test_a_queue_without_a_name_is_left_out(source):
    source.write_definitions(queue(""))
    source.write_queue("", messages(2))

    report = take(source)

    assert report.queue_count == 0
    assert any("queue '' in vhost '/' has an empty name" in line for line in report.left_out)
    assert any("2 messages of queue ''" in line for line in report.left_out)


def test_leaving_something_out_has_to_be_asked_for(source, tmp_path):
    source.write_definitions(queue("short", {"x-max-age": "7D"}))

    with pytest.raises(PreconditionFailedError, match="--partial"):
        take(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()

    take(source, tmp_path / "data", is_partial=True)
    assert read_vhosts(tmp_path / "data" / "vhosts.json") == ["/"]
    assert [user.name for user in read_users(tmp_path / "data" / "users.json") or []] == ["anna"]


def test_what_goes_with_its_connection_is_not_missed(source):
    mine = queue("mine", bits=2 | EXCLUSIVE)
    source.write_definitions(queue("passing", bits=0), mine, bound("mine", "amq.topic", ""))
    source.write_queue("mine", messages(1))

    report = take(source)

    assert (report.left_out, report.queue_count, report.binding_count) == ([], 0, 0)


def test_a_user_that_cannot_be_is_left_out_and_the_others_come(source, tmp_path):
    bad = {**USER, "name": "otto", "hashing_algorithm": "rot13", "password_hash": "x"}
    odd = {**USER, "name": "olga", "permissions": {"/": {"config": "(?=a)", "write": "", "read": ""}}}
    write_directory(source.path.parent, [USER, bad, odd], ["/"])

    report = take(source, tmp_path / "data", is_partial=True)

    assert [user.name for user in read_users(tmp_path / "data" / "users.json") or []] == ["anna", "olga"]
    assert len(report.left_out) == 2


def test_names_that_are_no_text_are_replaced_when_that_is_asked_for(source, tmp_path):
    content = bytearray(b"".join([message(1, "", "key-a", b"x"), message(2, "", "a" * 255, b"y")]))
    content[content.index(b"key-a") + 4] = 0xFF
    place = content.index(b"a" * 255)
    content[place : place + 255] = b"\xff" * 255
    source.write_definitions(queue("q"))
    source.write_queue("q", [bytes(content), message(3, "", "q", b"z")])

    assert "queue 'q', 2 messages" in take(source).left_out[0]
    with pytest.raises(PreconditionFailedError, match="not UTF-8"):
        take(source, tmp_path / "data")
    assert not (tmp_path / "data").exists()
    report = take(source, tmp_path / "data", is_partial=True)

    assert report.message_count == 3
    log = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("msgs.*"))
    assert b"key-\xff" not in log
    assert "key-\ufffd".encode() in log
    assert ("\ufffd" * 85).encode() in log


def test_a_directory_that_holds_something_is_left_alone(source, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine").write_text("mine")

    with pytest.raises(PreconditionFailedError, match="is not empty"):
        take(source, tmp_path / "data")

    assert (tmp_path / "data" / "mine").read_text() == "mine"
