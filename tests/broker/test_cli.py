"""The command line as a process, against a broker as a process."""

import json
import subprocess
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

pytestmark = pytest.mark.slow


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([penstock_command(), *arguments], capture_output=True, text=True, timeout=60, check=False)


def vhost(broker: Broker, name: str) -> str:
    """Return the URI of a vhost made for one test."""
    with penstock.connect(broker.uri()) as root:
        root.admin.create_vhost(name)
        root.admin.set_permission("guest", name, ".*", ".*", ".*")
    return broker.uri(name)


def test_perf_prints_its_figures_and_keeps_its_queues_only_when_told(broker: Broker) -> None:
    uri = vhost(broker, "perf")

    result = run(
        "perf", "throughput", "--uri", uri, "--messages", "2000", "--consumers", "0", "--keep", "--output", "json"
    )

    assert result.returncode == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["confirmed"] == 2_000
    assert figures["broker_cpu_us"] >= 0
    assert {"published_per_s", "confirmed_per_s", "consumed_per_s", "latency_us"} <= set(figures)
    with penstock.connect(uri) as connection:
        assert connection.admin.get_queue("perf-1").ready_count == 2_000
        assert run("perf", "throughput", "--uri", uri, "--messages", "10").returncode == 0
        assert connection.admin.list_queues() == []


def test_perf_reads_streams_and_leaves_them_whole(broker: Broker) -> None:
    uri = vhost(broker, "perf-streams")

    flags = ("--uri", uri, "--stream", "--messages", "2000", "--keep", "--output", "json")
    both = run("perf", "throughput", *flags)
    again = run("perf", "throughput", *flags, "--publishers", "0")

    assert (both.returncode, again.returncode) == (0, 0), both.stderr + again.stderr
    assert (json.loads(both.stdout)["confirmed"], json.loads(both.stdout)["consumed"]) == (2_000, 2_000)
    assert json.loads(again.stdout)["consumed"] == 2_000
    with penstock.connect(uri) as connection:
        assert connection.stream("perf-1").info().message_count == 2_000


def test_perf_consumes_until_empty(broker: Broker) -> None:
    uri = vhost(broker, "emptied")
    with penstock.connect(uri) as connection:
        connection.declare_queue("perf-1")
        connection.publish_many([b"x" * 16] * 500, routing_key="perf-1")

    result = run("perf", "throughput", "--uri", uri, "--publishers", "0", "--until-empty", "--output", "json")

    assert json.loads(result.stdout)["consumed"] == 500


def test_a_wrong_password_is_one_line_and_a_status(broker: Broker) -> None:
    result = run("status", "--uri", broker.uri(password="wrong"), "--output", "json")

    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("penstock: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_log_of_a_stopped_broker_is_verified(tmp_path: Path) -> None:
    own = Broker(tmp_path / "data", shards=1)
    with own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("jobs")
            connection.publish_many([b"x"] * 100, routing_key="jobs")
            (found,) = connection.admin.list_vhosts()
        own.stop()

    result = run("log", "verify", str(own.data_dir / found.directory), "--output", "json")

    assert result.returncode == 0, result.stderr
    segments = json.loads(result.stdout)
    assert sum(segment["messages"] for segment in segments) == 100
    assert [segment["error"] for segment in segments] == [None] * len(segments)


def test_corruption_in_a_log_is_told_and_is_the_exit_status(tmp_path: Path) -> None:
    own = Broker(tmp_path / "data", shards=1)
    with own:
        with penstock.connect(own.uri()) as connection:
            connection.declare_queue("jobs")
            connection.publish_many([b"body" * 100] * 100, routing_key="jobs")
            (found,) = connection.admin.list_vhosts()
        own.stop()
    directory = own.data_dir / found.directory
    segment = min(directory.glob("msgs.*"))
    content = bytearray(segment.read_bytes())
    content[content.index(b"body", 2_000)] ^= 0xFF
    segment.write_bytes(content)

    result = run("log", "verify", str(directory))

    assert result.returncode == 1
    assert "is corrupt at" in result.stderr


def test_whoever_stops_reading_ends_a_command_without_a_word(broker: Broker) -> None:
    uri = vhost(broker, "pipes")
    with penstock.connect(uri) as connection:
        connection.declare_queue("q")
        connection.publish_many([b"x" * 1_000] * 2_000, routing_key="q")

    command = [penstock_command(), "consume", "q", "--requeue", "--uri", uri]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
        status = process.wait(60)

    assert (status, said) == (141, b"")


def test_a_user_keeps_tags_and_the_last_administrator_stays(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        flags = ("--uri", broker.uri())

        changed = run("user", "set-password", "guest", "--password", "guest", *flags)
        deleted = run("user", "delete", "guest", *flags)
        missing = run("user", "set-password", "walter", "--password", "x", *flags)
        forced = run("user", "delete", "guest", "--force", *flags)

    assert changed.returncode == 0, changed.stderr
    assert deleted.returncode == 1
    assert "is the only user with the tag administrator" in deleted.stderr
    assert missing.stderr == "penstock: no user 'walter'; add it with `penstock user add walter`\n"
    assert forced.returncode == 0, forced.stderr


def test_a_shell_of_python_shows_what_there_is() -> None:
    names = dir(penstock)

    assert {"connect", "Connection", "NotFoundError", "aio", "__version__"} <= set(names)
    assert all(hasattr(penstock, name) for name in names)
    assert penstock.__version__[0].isdigit()


def test_a_refused_file_of_definitions_is_named(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "exported.json"
    file.write_text('{"queues": 5}')

    refused = run("definitions", "import", str(file), "--uri", broker.uri())

    assert refused.returncode == 1
    assert refused.stderr.startswith(f"penstock: definitions '{file}' has unsupported items")


def test_a_refused_import_says_once_what_to_do(broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "exported.json"
    queue = {"vhost": "/", "durable": True, "auto_delete": False}
    queues = [{**queue, "arguments": {}}, {**queue, "name": "jobs", "arguments": {"x-queue-type": "quorum"}}]
    file.write_text(json.dumps({"queues": queues}))

    refused = run("definitions", "import", str(file), "--uri", broker.uri())

    assert refused.stderr.count("an unchanged export") == 0
    assert refused.stderr.endswith("; correct or remove these items\n")
