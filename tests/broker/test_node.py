"""The process: its start, the files in its directory, and its exit when it cannot start."""

import json
import os
import re
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import penstock_command

MIB = 1024 * 1024
ROOT = "42099b4af021e53fd8fd4e056c2568d7c2e3ffa8"


@pytest.fixture
def own(tmp_path: Path) -> Broker:
    return Broker(tmp_path / "data")


def serve(directory: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    off = ("--grpc", "off", "--amqp", "off", "--http", "off", "--metrics", "off")
    command = [penstock_command(), "serve", "--data-dir", str(directory), *off, *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_directory_is_as_drawn_and_a_stop_is_clean(own: Broker) -> None:
    with own:
        files = {str(path.relative_to(own.data_dir)) for path in own.data_dir.rglob("*") if path.is_file()}
        assert own.stop() == 0

    assert {".lock", "node.json", "users.json", "vhosts.json"} <= files
    assert {f"{ROOT}/.vhost", f"{ROOT}/definitions.amqp", f"{ROOT}/policies.json"} <= files
    assert "clean" not in files
    assert (own.data_dir / "clean").exists()


def test_the_status_tells_one_data_directory_from_another(own: Broker, tmp_path: Path) -> None:
    with own:
        with penstock.connect(own.uri()) as connection:
            made = connection.admin.status().data_id
        own.stop()
        own.start()
        with penstock.connect(own.uri()) as connection:
            assert connection.admin.status().data_id == made
    with Broker(tmp_path / "other") as other, penstock.connect(other.uri()) as connection:
        assert connection.admin.status().data_id not in {"", made}

    assert json.loads((own.data_dir / "node.json").read_text())["data_id"] == made


def test_the_status_says_the_format_of_the_data(own: Broker) -> None:
    with own, penstock.connect(own.uri()) as connection:
        stated = json.loads((own.data_dir / "node.json").read_text())["format"]
        assert connection.admin.status().data_format == stated == 2
        shown = subprocess.run(
            [penstock_command(), "status", "--uri", own.uri()], capture_output=True, text=True, timeout=30, check=True
        )

    assert ["data_format", "2"] in [line.split() for line in shown.stdout.splitlines()]


def test_a_killed_broker_leaves_no_clean_mark_and_starts_again(own: Broker) -> None:
    with own:
        own.kill()
        assert not (own.data_dir / "clean").exists()
        own.start()
        assert own.stop() == 0


def test_an_idle_broker_is_small(own: Broker) -> None:
    """The pages of the native module are not counted: how many there are depends on the profile that compiled it."""
    with own:
        maps = Path(f"/proc/{own.pid}/smaps").read_text()

    sizes: dict[bool, int] = {True: 0, False: 0}
    is_native = False
    for line in maps.splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_native = "/_core." in line
        elif line.startswith("Rss:"):
            sizes[is_native] += int(line.split()[1]) * 1024
    assert sizes[True] > 0
    assert sizes[False] < 73 * MIB


def test_the_broker_does_not_load_what_it_does_not_use(own: Broker) -> None:
    with own:
        maps = Path(f"/proc/{own.pid}/maps").read_text()

    assert "_core.abi3" in maps
    assert not [heavy for heavy in ("cygrpc", "cryptography/", "pyarrow/") if heavy in maps]


@pytest.mark.parametrize("flags", [(), ("--http", "127.0.0.1:15672")])
def test_a_start_names_the_listeners_that_were_set_and_are_not_supported(
    tmp_path: Path, flags: tuple[str, ...]
) -> None:
    command = [penstock_command(), "serve", "--data-dir", str(tmp_path / "data"), "--grpc", "off", "--metrics", "off"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, text=True, env=environment) as process:
        lines = []
        for line in process.stderr or ():
            lines.append(json.loads(line))
            if lines[-1]["event"] == "ready":
                break
        process.terminate()

    unsupported = [line["setting"] for line in lines if line["event"] == "this listener is not supported yet"]
    assert unsupported == [flag.removeprefix("--") for flag in flags[:1]]


@pytest.mark.parametrize(
    ("file", "content", "part"),
    [
        ("users.json", '[\n{"name": }]', "users.json' is not valid JSON at line 2 column 10"),
        ("vhosts.json", "[{]", "vhosts.json' is not valid JSON at line 1 column 3"),
        (f"{ROOT}/definitions.amqp", "\x01\0\0\0corrupt", "corrupt at byte 4"),
    ],
)
def test_a_broken_file_stops_the_start_with_one_clear_line(own: Broker, file: str, content: str, part: str) -> None:
    with own:
        own.stop()
    (own.data_dir / file).write_text(content)

    ended = serve(own.data_dir)

    assert ended.returncode == 1
    assert part in ended.stderr
    assert "Traceback" not in ended.stderr
    assert (own.data_dir / file).read_text() == content


def test_a_missing_vhosts_file_is_no_empty_broker(own: Broker) -> None:
    with own:
        own.stop()
    (own.data_dir / "vhosts.json").unlink()

    ended = serve(own.data_dir)

    assert ended.returncode == 1
    assert "vhosts.json' is missing" in ended.stderr


@pytest.mark.parametrize("listener", ["grpc", "amqp", "amqp-ws", "metrics"])
def test_a_port_in_use_is_named_with_the_way_out(tmp_path: Path, listener: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        grpc = () if listener == "grpc" else ("--grpc", "127.0.0.1:0")
        ended = serve(tmp_path / "data", *grpc, f"--{listener}", address)

    assert ended.returncode == 1
    setting = listener.replace("-", "_")
    told = f"cannot listen for {setting} on {address}: another process listens there; choose another with --{listener}"
    # Every line is JSON: no warning of Python is among them.
    line = [json.loads(text) for text in ended.stderr.splitlines()][-1]
    assert (line["event"], line["reason"]) == ("start failed", f"{told} or `off`")


def test_an_unknown_setting_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "penstock.toml").write_text("grcp = 1")

    ended = serve(tmp_path / "data", "--config", str(tmp_path / "penstock.toml"))

    assert ended.returncode == 1
    assert "'grcp'" in ended.stderr
    assert not (tmp_path / "data").exists()


def test_metrics_count_what_happens(own: Broker) -> None:
    with own, penstock.connect(own.uri()) as connection:
        connection.declare_queue("jobs")
        connection.publish_many([b"x"] * 10, routing_key="jobs")
        # Messages of a stream wait for no consumer: an alert for a growing count would fire for each stream.
        connection.declare_stream("events")
        connection.publish_many([b"x"] * 7, routing_key="events")
        with urllib.request.urlopen(f"{own.health}/metrics", timeout=5) as response:
            page = response.read().decode()
        with urllib.request.urlopen(f"{own.health}/health/live", timeout=5) as response:
            health = json.load(response)

    assert "penstock_messages_published_total 17.0" in page
    assert 'penstock_queue_messages_ready{vhost="/"} 10.0' in page
    assert health == {"status": "ok"}


def test_a_deleted_vhost_leaves_nothing_behind(own: Broker) -> None:
    with own, penstock.connect(own.uri()) as connection:
        connection.admin.create_vhost("blue")
        connection.admin.set_permission("guest", "blue", ".*", ".*", ".*")
        with penstock.connect(own.uri("blue")) as blue:
            blue.declare_queue("jobs")
            blue.publish(b"x", routing_key="jobs")
        directories = {path.name for path in own.data_dir.iterdir() if path.is_dir()}
        connection.admin.delete_vhost("blue")
        left = {path.name for path in own.data_dir.iterdir() if path.is_dir()}
        permissions = [each.vhost for each in connection.admin.list_permissions()]

    assert len(directories) == 2
    assert left == {ROOT}
    assert permissions == ["/"]


def test_the_metrics_address_lists_its_paths_and_no_versions(broker: Broker) -> None:
    with urllib.request.urlopen(f"{broker.health}/", timeout=30) as answer:
        page, server = answer.read().decode(), answer.headers["Server"]

    assert page.splitlines() == ["/health/startup", "/health/ready", "/health/live", "/metrics"]
    assert server is None


def test_every_line_that_a_broker_writes_is_json(own: Broker) -> None:
    with own:
        assert own.stop() == 0

    lines = [json.loads(line) for line in own.log.splitlines()]
    assert [line["event"] for line in lines if line["event"] in {"ready", "stopped"}] == ["ready", "stopped"]
    assert [line for line in lines if list(line)[:4] != ["timestamp", "level", "logger", "event"]] == []


def test_a_person_at_a_terminal_gets_lines_to_begin_with(tmp_path: Path) -> None:
    reading, terminal = os.openpty()
    command = [penstock_command(), "serve", "--data-dir", str(tmp_path / "data"), "--grpc", "127.0.0.1:0"]
    off = [*("--metrics", "off"), *("--amqp", "off"), *("--http", "off")]
    written = b""
    with subprocess.Popen([*command, *off], stdout=subprocess.PIPE, stderr=terminal) as process:
        os.close(terminal)
        while b"consume hello -n 1" not in written:
            written += os.read(reading, 4_096)
        process.terminate()
        assert process.stdout is not None
        assert process.stdout.read() == b""
    os.close(reading)

    assert b"is ready after" in written
    assert b"\x1b[" in written
