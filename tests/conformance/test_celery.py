"""Celery's worker with the tasks of the example: later, retried, by priority, remote-controlled, and through a kill.

The tasks are acked late. So each that was sent ends at least once, and runs again only if its ack was not stored when
the broker was killed: those are the ones that the worker had, and the few whose ack was on its way.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conformance.clients.languages import EXAMPLES, python_of, variables
from conformance.clients.runs import ROOT
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

FOLDER = EXAMPLES / "celery"
PROCESSES = 2
AGAIN_MAX = 2 * PROCESSES
"""Tasks that a worker had when the broker was killed, and acks on their way: one of each for every process."""


class Shop:
    """A broker, and Celery's commands of the example with it as their broker."""

    def __init__(self, folder: Path) -> None:
        port = free_ports(1)[0]
        self.broker = Broker(folder / "data", "--amqp", f"127.0.0.1:{port}").start()
        self._python = python_of("celery", ROOT / "target" / "conformance")
        self._journal, self._log = folder / "journal", folder / "worker.log"
        self._variables = {**variables(f"amqp://guest:guest@127.0.0.1:{port}//"), "SHOP_JOURNAL": str(self._journal)}

    @property
    def journal(self) -> list[str]:
        return self._journal.read_text().splitlines() if self._journal.exists() else []

    def call(self, *arguments: str) -> str:
        """Run Python in the example's folder, and return what it prints."""
        done = subprocess.run(
            [self._python, *arguments],
            cwd=FOLDER,
            env=self._variables,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def send(self, code: str) -> str:
        return self.call("-c", f"from shop_tasks import app, charge, remind, ship\n{code}")

    @contextmanager
    def worker(self, processes: int) -> Iterator[None]:
        command = [
            *(str(self._python), "-m", "celery", "--app", "shop_tasks", "worker", "--hostname", "one@shop"),
            *("--concurrency", str(processes), "--loglevel", "info"),
        ]
        with self._log.open("w") as log:
            process = subprocess.Popen(command, cwd=FOLDER, env=self._variables, stdout=log, stderr=log)
        try:
            eventually(lambda: "one@shop ready" in self._log.read_text(), True, seconds_max=60)
            yield
        finally:
            process.terminate()
            process.wait(timeout=60)

    def waits_for(self, *lines: str) -> None:
        eventually(lambda: set(lines) - set(self.journal), set(), seconds_max=90)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shop.broker.kill()


def test_the_example_sends_tasks_of_all_kinds_and_finds_the_worker(shop: Shop) -> None:
    with shop.worker(PROCESSES):
        printed = shop.call("send.py").splitlines()
        shop.waits_for(*(f"shipped {order}" for order in [*range(1, 21), 100]), "reminded ann", "charged 7")

    assert printed == ["sent 23", "there is one@shop"]
    assert [line for line in shop.journal if "charg" in line] == [
        "charging 7, try 1",
        "charging 7, try 2",
        "charging 7, try 3",
        "charged 7",
    ]
    assert Counter(shop.journal).most_common(1)[0][1] == 1


def test_a_task_of_a_higher_priority_runs_before_those_that_wait(shop: Shop) -> None:
    shop.send(
        "for order in range(10): ship.apply_async([order], priority=order % 2)\nship.apply_async([99], priority=9)"
    )

    with shop.worker(1):
        shop.waits_for(*(f"shipped {order}" for order in [*range(10), 99]))

    shipped = [int(line.split()[1]) for line in shop.journal if line.startswith("shipped")]
    assert shipped == [99, 1, 3, 5, 7, 9, 0, 2, 4, 6, 8]


def test_a_worker_is_controlled_from_elsewhere(shop: Shop) -> None:
    with shop.worker(PROCESSES):
        found = shop.send(
            "print(app.control.inspect(timeout=5).registered()['one@shop'])\n"
            "print(app.control.rate_limit('shop_tasks.ship', '100/s', reply=True, timeout=5))\n"
            "print(app.control.cancel_consumer('shop', reply=True, timeout=5))"
        ).splitlines()
        shop.send("ship.apply_async([1])")
        waits = shop.send("print(app.control.add_consumer('shop', reply=True, timeout=5))")
        shop.waits_for("shipped 1")

    assert all(f"shop_tasks.{name}" in found[0] for name in ("charge", "remind", "ship"))
    assert ["ok" in line for line in [*found[1:], waits]] == [True, True, True]


def test_a_worker_runs_every_task_through_a_kill_of_the_broker(shop: Shop) -> None:
    with shop.worker(PROCESSES):
        shop.send(
            "for order in range(60): ship.apply_async([order, 0.1])\n"
            "remind.apply_async(['ann'], countdown=6)\n"
            "charge.apply_async([7, 3])"
        )
        eventually(lambda: sum("shipped" in line for line in shop.journal) >= 10, True, seconds_max=60)

        shop.broker.kill()
        at_kill = [line for line in shop.journal if line.startswith("shipped")]
        shop.broker.start()

        shop.waits_for(*(f"shipped {order}" for order in range(60)), "reminded ann", "charged 7")
        eventually(lambda: shop.send("print(len(app.control.ping(timeout=1)))").strip(), "1", seconds_max=60)

    runs = Counter(line for line in shop.journal if line.startswith("started"))
    assert len(at_kill) < 60, "the broker was killed while tasks waited"
    assert sum(count - 1 for count in runs.values()) <= AGAIN_MAX
