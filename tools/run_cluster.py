"""Runs a cluster of three brokers on this machine until Ctrl-C: `run_cluster.py DIRECTORY`, by default ./data-cluster.

Each broker has a data directory and a log file there. The coordinator is in the same directory, which is for
development: the disk of one machine is behind all of it.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Final

COUNT: Final = 3
READY_S: Final = 60
STOP_S: Final = 60
STEPS: Final = ("queue declare hello", "publish 'Hello, cluster!' -r hello", "consume hello -n 1")
SECRET: Final = "secret"
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True, slots=True)
class Place:
    """A broker's name and its ports."""

    name: str
    grpc: str
    amqp: str
    peers: str
    metrics: str


def places() -> list[Place]:
    def at(port: int, step: int) -> list[str]:
        return [f"127.0.0.1:{port + step * number}" for number in range(COUNT)]

    names = [f"mq-{number}" for number in range(COUNT)]
    ports = zip(names, at(5680, 10), at(5672, 10), at(5681, 10), at(15692, 1), strict=True)
    return [Place(*each) for each in ports]


def command(directory: Path, place: Place, all_places: list[Place]) -> list[str]:
    """Return the command that starts a broker."""
    brokers = ",".join(f"{each.name}={each.peers}" for each in all_places)
    return [
        str(Path(sys.executable).with_name("penstock")),
        *("serve", "--data-dir", str(directory / place.name), "--http", "off", "--log-format", "json"),
        *("--grpc", place.grpc, "--amqp", place.amqp, "--metrics", place.metrics),
        *("--cluster", "local", "--cluster-broker", place.name, "--cluster-brokers", brokers),
        *("--cluster-peers", place.peers, "--cluster-coordinator", f"file:{directory / COORDINATOR}"),
        *("--cluster-secret-file", str(directory / SECRET)),
    ]


def make_secret(directory: Path) -> None:
    path = directory / SECRET
    if not path.exists():
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32) + "\n")


def start(directory: Path, place: Place, all_places: list[Place]) -> subprocess.Popen[bytes]:
    with (directory / f"{place.name}.log").open("ab") as log:
        # Ctrl-C is for this program, which then stops the brokers.
        return subprocess.Popen(command(directory, place, all_places), stdout=log, stderr=log, start_new_session=True)


def wait_until_ready(directory: Path, running: dict[Place, subprocess.Popen[bytes]]) -> Place:
    """Return the broker that leads once all are ready. Raise SystemExit when one ends, or takes too long."""
    deadline = time.monotonic() + READY_S
    leads: Place | None = None
    for place, process in running.items():
        while not is_ready(place) or leads is None:
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"broker {place.name} is not ready; its log is {directory / place.name}.log")
            time.sleep(0.1)
            leads = leader(directory, list(running))
    assert leads is not None
    return leads


def is_ready(place: Place) -> bool:
    try:
        with urllib.request.urlopen(f"http://{place.metrics}/health/ready", timeout=1) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def leader(directory: Path, all_places: list[Place]) -> Place | None:
    """Return the broker that leads `/`, the first virtual host of the cluster; None while none of this run does."""
    coordinator = directory / COORDINATOR
    leaders = [json.loads(path.read_text())["record"]["leader"] for path in coordinator.glob("shard-*.0.1.json")]
    boots = {(found["broker"], found["boot"]) for found in leaders}
    for place in all_places:
        beat = coordinator / f"broker-{place.name}.json"
        if beat.exists() and (place.name, json.loads(beat.read_text())["boot"]) in boots:
            return place
    return None


def greet(directory: Path, all_places: list[Place], leads: Place) -> None:
    sys.stdout.write(f"A cluster of {COUNT} brokers is ready; Ctrl-C stops it.\n\n")
    sys.stdout.write(f"  {'broker':8} {'gRPC':16} {'AMQP':16} {'health':36} log\n")
    for place in all_places:
        health, log = f"http://{place.metrics}/health/ready", directory / f"{place.name}.log"
        sys.stdout.write(f"  {place.name:8} {place.grpc:16} {place.amqp:16} {health:36} {log}\n")
    program = os.path.relpath(Path(sys.executable).with_name("penstock"))
    sys.stdout.write(
        "\n  user     guest with password guest, from this machine only\n\n"
        f"Broker {leads.name} leads the virtual host /. Paste this to publish a message and to get it back:\n\n"
        f"export PENSTOCK_URI=penstock://guest:guest@{leads.grpc}/\n"
        f"{' && '.join(f'{program} {step}' for step in STEPS)}\n"
    )
    sys.stdout.flush()


def stop(running: dict[Place, subprocess.Popen[bytes]]) -> None:
    for process in running.values():
        process.send_signal(signal.SIGTERM)
    for place, process in running.items():
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            sys.stderr.write(f"broker {place.name} did not stop in {STOP_S} s, and is killed\n")
            process.kill()
            process.wait()


def run(directory: Path) -> None:
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    make_secret(directory)
    all_places = places()
    running = {place: start(directory, place, all_places) for place in all_places}
    try:
        greet(directory, all_places, wait_until_ready(directory, running))
        signal.pause()
    except KeyboardInterrupt:
        sys.stdout.write("\nstopping\n")
    finally:
        stop(running)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "./data-cluster").absolute())
