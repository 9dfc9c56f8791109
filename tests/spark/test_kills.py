"""Exactly once through kill -9 of the driver and of workers, while a query copies a stream.

It runs plainly; through a random shuffle with staged rows; and on a cluster of two workers that runs slow tasks twice,
with another number of tasks after each start. Kills of the broker come in as well while a query moves a queue into a
stream.

SPARK_KILLS sets the number; who is killed first, and when, is drawn from SPARK_KILL_SEED, which is printed. A kill
waits for rows to arrive, not for time, so that it hits the work.
"""

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import penstock
from support import Broker, eventually

KILLS = int(os.environ.get("SPARK_KILLS", "1"))
SEED = int(os.environ.get("SPARK_KILL_SEED") or random.SystemRandom().randrange(1_000_000))
ROWS_PER_KILL = 600
MESSAGES_PER_KILL = 1_800
TASKS_MAX = 5
# On a busy machine a session, its query and the workers of their first batch take minutes.
START_SECONDS_MAX = 600
ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600 + 600 * KILLS)]


class Driver:
    """The query in a process of its own."""

    def __init__(self, arguments: list[str], log: Path, script: str = "copying.py") -> None:
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT / "broker")}
        command = [sys.executable, str(Path(__file__).with_name(script)), *arguments]
        with log.open("ab") as out:
            self._process = subprocess.Popen(command, stdout=out, stderr=out, env=environment, start_new_session=True)
        self._log = log

    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the driver with its JVM; its workers see that their pipe is closed."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def kill_a_worker(self) -> bool:
        """Kill a worker; return whether there was one."""
        workers = [pid for pid, parent, text in processes() if "pyspark" in text and "daemon" in text]
        own = [pid for pid in workers if self._process.pid in ancestors(pid)]
        if len(own) < 2:
            return False
        # The first is the daemon that forks the others.
        os.kill(max(own), signal.SIGKILL)
        return True

    def has_finished(self) -> bool:
        """Return whether it ended normally."""
        return self._process.wait() == 0

    def finish(self) -> None:
        status = self._process.wait()
        assert status == 0, self._log.read_text()[-4_000:]


def processes() -> list[tuple[int, int, str]]:
    """Return pid, parent and command of all visible processes."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            text = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        found.append((int(folder.name), parent, text))
    return found


def ancestors(pid: int) -> set[int]:
    parents = {child: parent for child, parent, _ in processes()}
    found: set[int] = set()
    while pid in parents and pid not in found:
        found.add(pid)
        pid = parents[pid]
    return found


def has_come(driver: Driver, count: Callable[[], int], wanted: int) -> bool:
    """Wait until so many rows are there, or the driver is gone; return whether they are."""
    return not driver.is_running() or count() >= wanted


def stored(broker: Broker, sink: str) -> int:
    """Count rows by a connection of its own: the broker may have been restarted."""
    with penstock.connect(broker.uri(), native=False) as connection:
        return connection.stream(sink).info().message_count


@pytest.mark.parametrize("kind", ["stream", "shuffled", "cluster"])
def test_every_row_is_stored_once_whoever_is_killed(
    broker: Broker, connection: penstock.Connection, tmp_path: Path, kind: str
) -> None:
    chance = random.Random(SEED)
    source, copy = f"killed-source-{kind}", f"killed-sink-{kind}"
    connection.declare_stream(source)
    connection.declare_stream(copy)
    rows = [b"%d" % number for number in range(ROWS_PER_KILL * (KILLS + 1))]
    connection.stream(source).publish_many(rows)
    sink = connection.stream(copy)
    arguments = [broker.uri(), kind, source, copy, str(tmp_path / "checkpoint")]
    log = tmp_path / "driver.log"
    kinds: Counter[str] = Counter()

    def start() -> Driver:
        return Driver([*arguments, str(chance.randint(1, TASKS_MAX))], log)

    first = chance.randrange(3)
    driver = start()
    try:
        for number in range(KILLS):
            wanted = number * ROWS_PER_KILL + chance.randint(1, ROWS_PER_KILL)
            eventually(partial(has_come, driver, lambda: sink.info().message_count, wanted), True, START_SECONDS_MAX)
            assert driver.is_running(), log.read_text()[-4_000:]
            if (first + number) % 3 == 2 and driver.kill_a_worker():
                kinds["worker"] += 1
                continue
            driver.kill()
            kinds["driver"] += 1
            driver = start()
        driver.finish()
    finally:
        if driver.is_running():
            driver.kill()

    got = Counter(message.body for message in sink.read("first", until="next"))
    lost, doubled = len(set(rows) - set(got)), sum(got.values()) - len(got)
    print(f"\n{kind}, seed {SEED}: {len(rows):,} rows, killed {dict(kinds)}: {lost} lost, {doubled} twice")
    assert (lost, doubled) == (0, 0)
    assert sum(kinds.values()) == KILLS


def test_every_message_of_a_queue_is_stored_once_whoever_is_killed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    rows = [b"%d" % number for number in range(MESSAGES_PER_KILL * (KILLS + 1))]
    log = tmp_path / "driver.log"
    kinds: Counter[str] = Counter()
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri(), native=False) as connection:
            connection.declare_queue("killed-queue")
            connection.declare_stream("killed-sink")
            connection.publish_many(rows, routing_key="killed-queue")
        count = partial(stored, broker, "killed-sink")
        arguments = [broker.uri(), "queue", "killed-queue", "killed-sink", str(tmp_path / "checkpoint")]

        first = chance.randrange(3)
        driver = Driver(arguments, log)
        try:
            for number in range(KILLS):
                wanted = number * MESSAGES_PER_KILL + chance.randint(1, MESSAGES_PER_KILL)
                eventually(partial(has_come, driver, count, wanted), True, START_SECONDS_MAX)
                assert driver.is_running(), log.read_text()[-4_000:]
                kind = ("driver", "broker", "worker")[(first + number) % 3]
                if kind == "broker":
                    broker.kill()
                    broker.start()
                elif kind == "driver" or not driver.kill_a_worker():
                    kind = "driver"
                    driver.kill()
                    driver = Driver(arguments, log)
                kinds[kind] += 1
            driver.finish()
        finally:
            if driver.is_running():
                driver.kill()

        with penstock.connect(broker.uri(), native=False) as connection:
            got = Counter(message.body for message in connection.stream("killed-sink").read("first", until="next"))
            left = connection.admin.get_queue("killed-queue")
    lost, doubled = len(set(rows) - set(got)), sum(got.values()) - len(got)
    print(f"\nseed {SEED}: {len(rows):,} messages, killed {dict(kinds)}: {lost} lost, {doubled} twice")
    assert (lost, doubled) == (0, 0)
    assert (left.ready_count, left.unacked_count) == (0, 0)
    assert sum(kinds.values()) == KILLS


def test_every_message_of_a_queue_is_stored_once_by_a_loop_that_is_killed_often(tmp_path: Path) -> None:
    """Kill the driver, or the broker under it, at any point; restart a process that fails because of that."""
    chance = random.Random(SEED)
    rows = [b"%d" % number for number in range(MESSAGES_PER_KILL * (KILLS + 1))]
    log = tmp_path / "loop.log"
    kinds: Counter[str] = Counter()
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri(), native=False) as connection:
            connection.declare_queue("killed-queue")
            connection.declare_stream("killed-sink")
            connection.publish_many(rows, routing_key="killed-queue")
        count = partial(stored, broker, "killed-sink")
        arguments = [broker.uri(), "killed-queue", "killed-sink", str(tmp_path / "checkpoint")]

        first = chance.randrange(2)
        loop = Driver(arguments, log, "queue_loop.py")
        try:
            for number in range(KILLS):
                wanted = number * MESSAGES_PER_KILL + chance.randint(1, MESSAGES_PER_KILL)
                while count() < wanted:
                    if not loop.is_running():
                        loop = Driver(arguments, log, "queue_loop.py")
                    eventually(partial(has_come, loop, count, wanted), True, START_SECONDS_MAX)
                kind = ("driver", "broker")[(first + number) % 2]
                if kind == "broker":
                    broker.kill()
                    broker.start()
                else:
                    loop.kill()
                kinds[kind] += 1
            if not loop.has_finished():
                loop = Driver(arguments, log, "queue_loop.py")
                loop.finish()
        finally:
            if loop.is_running():
                loop.kill()

        with penstock.connect(broker.uri(), native=False) as connection:
            got = Counter(message.body for message in connection.stream("killed-sink").read("first", until="next"))
            left = connection.admin.get_queue("killed-queue")
    lost, doubled = len(set(rows) - set(got)), sum(got.values()) - len(got)
    print(f"\nseed {SEED}: {len(rows):,} messages, loop killed {dict(kinds)}: {lost} lost, {doubled} twice")
    assert (lost, doubled) == (0, 0)
    assert (left.ready_count, left.unacked_count) == (0, 0)
