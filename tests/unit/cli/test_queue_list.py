"""`penstock queue list`: columns, filter, order, rates and formats."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import output
from penstock.cli.main import app
from penstock.client.sync import Connection
from support.fake_transport import FakeBroker, FakeQueue, FakeTransport, connect_to

Invoke = Callable[..., Result]


@pytest.fixture
def broker() -> FakeBroker:
    """Queues a, b and mail with 0, 2 and 1 messages."""
    broker = FakeBroker()
    connection = connect_to(FakeTransport(broker))
    for name, count in (("mail", 1), ("b", 2), ("a", 0)):
        connection.declare_queue(name)
        connection.publish_many([b"body"] * count, routing_key=name)
    connection.close()
    return broker


@pytest.fixture
def invoke(broker: FakeBroker) -> Invoke:
    def connect(uri: str, **options: Any) -> Connection:
        return connect_to(FakeTransport(broker))

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(app, ["queue", "list", *arguments], obj=connect)

    return run


def names(result: Result) -> list[str]:
    return [line.split()[0] for line in result.stdout.splitlines()[1:]]


def test_a_pipe_gets_plain_columns(invoke: Invoke) -> None:
    lines = invoke().stdout.splitlines()

    assert lines[0].split() == [
        "name",
        "type",
        "ready_count",
        "delayed_count",
        "unacked_count",
        "bytes",
        "consumer_count",
    ]
    assert [line.split()[:3] for line in lines[1:]] == [
        ["a", "classic", "0"],
        ["b", "classic", "2"],
        ["mail", "classic", "1"],
    ]
    assert all(line.isascii() for line in lines)


def test_a_table_is_there_for_who_asks(invoke: Invoke) -> None:
    assert "│" in invoke("-o", "table").stdout


def test_json_has_what_the_table_has(invoke: Invoke) -> None:
    found = json.loads(invoke("--output", "json", "b").stdout)

    assert len(found) == 1
    assert {"name", "type", "bytes", "arguments", "ready_bytes"} <= found[0].keys()
    assert (found[0]["type"], found[0]["ready_count"]) == ("classic", 2)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), ["a", "b", "mail"]),
        (("--reverse",), ["mail", "b", "a"]),
        (("--sort", "ready_count"), ["b", "mail", "a"]),
        (("--sort", "ready_count", "--reverse"), ["a", "mail", "b"]),
        (("m*",), ["mail"]),
        (("?",), ["a", "b"]),
        (("nothing",), []),
    ],
)
def test_queues_are_filtered_and_sorted(invoke: Invoke, arguments: tuple[str, ...], expected: list[str]) -> None:
    assert names(invoke(*arguments)) == expected


def test_an_unknown_column_is_wrong_use(invoke: Invoke) -> None:
    result = invoke("--sort", "colour")

    assert result.exit_code == 2
    assert "no column 'colour'; use one of name, type, ready_count" in " ".join(result.stderr.split())


def test_rates_come_from_two_samples(invoke: Invoke, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    connection, now = connect_to(FakeTransport(broker)), [100.0]

    def sleep(seconds: float) -> None:
        connection.publish_many([b"x"] * 10, routing_key="a")
        connection.get("a", auto_ack=True)
        connection.get("a")
        connection.purge_queue("b")
        connection.declare_queue("new")
        now[0] += seconds

    monkeypatch.setattr("penstock.cli.queue_list.time.sleep", sleep)
    monkeypatch.setattr("penstock.cli.queue_list.time.monotonic", lambda: now[0])
    with connection:
        shown = json.loads(invoke("--rates", "-o", "json").stdout)
    rates = ("published_per_second", "delivered_per_second", "settled_per_second")
    found = {row["name"]: tuple(row[rate] for rate in rates) for row in shown}

    assert found == {
        "a": (5.0, 1.0, 0.5),
        "b": (0.0, 0.0, 1.0),
        "mail": (0.0, 0.0, 0.0),
        "new": (None, None, None),
    }


def test_a_queue_that_was_declared_anew_has_no_rate(
    invoke: Invoke, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.cli.queue_list.time.sleep", lambda _: broker.queues.update(b=FakeQueue()))

    assert json.loads(invoke("--rates", "-o", "json", "b").stdout)[0]["published_per_second"] is None


def test_watching_goes_on_until_it_is_interrupted(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("penstock.cli.queue_list.time.sleep", sleep)
    result = invoke("--watch", "--interval", "0.5")

    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"
    assert slept == [0.5] * 3
    assert result.stdout.count("published_per_second") == 2


def test_a_table_cuts_no_name_on_a_narrow_terminal(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "amq.gen-0123456789abcdefghijkl"
    with connect_to(FakeTransport(broker)) as connection:
        connection.declare_queue(name)
        monkeypatch.setattr(output, "WIDE", 80)
        shown = CliRunner().invoke(
            app, ["queue", "list", "-o", "table"], obj=lambda uri, **_: connect_to(FakeTransport(broker))
        )

    assert "…" not in shown.stdout
    cells = [line.split("│")[1].strip() for line in shown.stdout.splitlines() if line.startswith("│")]
    assert name in "".join(cells)


def test_the_headings_of_a_table_break_between_words(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect_to(FakeTransport(broker)) as connection:
        connection.declare_queue("amq.gen-" + "0123456789" * 12)
        monkeypatch.setattr(output, "WIDE", 80)
        shown = CliRunner().invoke(
            app, ["queue", "list", "-o", "table"], obj=lambda uri, **_: connect_to(FakeTransport(broker))
        )

    headings = " ".join(line for line in shown.stdout.splitlines() if line.startswith("┃")).replace("┃", " ").split()
    assert set(headings) == {"name", "type", "ready", "delayed", "unacked", "bytes", "consumer", "count"}


def test_a_table_has_no_empty_column_of_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_rows([("a", {}), ("b", {})], ("name", "arguments"), output.Format.TABLE)
    without = capsys.readouterr().out
    output.print_rows([("a", {}), ("b", {"x-durability": "disk"})], ("name", "arguments"), output.Format.TABLE)

    assert "arguments" not in without
    assert "x-durability=disk" in capsys.readouterr().out
