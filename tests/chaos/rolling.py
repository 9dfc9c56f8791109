"""Brokers of an earlier version that are replaced by this one under load, one after the other: `make long-cluster`.

In between both versions work together for a while, and each of them leads a virtual host at some time. The exit status
is 1 when anything that was confirmed is lost, or another promise is broken.
"""

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from bench.against import built
from chaos.load import USER, Marks
from chaos.network import Loopback
from chaos.report import FaultRecord
from chaos.run import Plan, Run, run
from support.broker import penstock_command
from support.serving_cluster import NAMES

__all__ = ["Rolling"]

FIRST: Final = "c8137f8c"
"""The commit with the first version of brokers that form a cluster."""
LINE_WIDTH: Final = 140
MIXED_S: Final = 10.0
"""How long both versions work together before the next broker is replaced."""
TURNS_MAX: Final = 8
"""Restarts of earlier brokers, at most, until one of this version leads."""
COMMAND_S: Final = 90


def main() -> int:
    options = parse(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else LINE_WIDTH, highlight=False)
    console.print(f"building {options.previous}")
    program: str = options.program or str(built(options.previous, "setup").with_name("penstock"))
    directory = options.directory / "rolling"
    plan = Plan(options.seed, 0.0, [], options.rate, directory, keeps=options.keep, program=program)
    found = run(plan, Loopback(NAMES).places, console, lambda started: Rolling(started, options.seconds).play())
    return 1 if found.wrong else 0


@dataclass(frozen=True, slots=True)
class Act:
    """A broker that was stopped and started, how, and the virtual hosts that it led."""

    kind: str
    broker: str
    how: str
    led: set[str]


class Rolling:
    """The script of one run. Brokers that were replaced are in `new`."""

    def __init__(self, found: Run, mixed_s: float) -> None:
        self._run = found
        self._mixed_s = mixed_s
        self._brokers = found.cluster.brokers
        self._new: list[str] = []

    def play(self) -> None:
        time.sleep(self._mixed_s)
        for name in NAMES:
            self._replace(name)
            if len(self._new) < len(NAMES):
                self._until_new_leads()
            time.sleep(self._mixed_s)

    def _replace(self, name: str) -> None:
        """Drain a broker if its version can, stop it, and start this version on its data."""
        found, broker = self._run, self._brokers[name]
        led = self._led(name)
        marks = found.load.mark()
        is_drained = self._cluster_command(broker.program, "drain", name, "--uri", self._uri(name))
        self._restart(name, penstock_command())
        self._new.append(name)
        if is_drained and not self._cluster_command(broker.program, "drain", name, "--undo", "--uri", self._uri(name)):
            found.wrong.append(f"the draining of {name} cannot be ended")
        self._check(marks, Act("replacement", name, "drained" if is_drained else "not drained", led))

    def _restart(self, name: str, program: str) -> None:
        broker = self._brokers[name]
        status = broker.stop()
        if status:
            self._run.wrong.append(f"{name} stopped with status {status}")
        broker.program = program
        broker.start()

    def _check(self, marks: dict[str, Marks], act: Act) -> None:
        """Enter the times until the next confirm and the next delivery."""
        found, record = self._run, FaultRecord(f"{act.kind}, {act.how}")
        what = f"{act.kind} of {act.broker}"
        for vhost, seconds in found.confirmed(marks, what).items():
            (record.hit if vhost in act.led else record.other)[vhost] = seconds
        for vhost in act.led:
            record.delivered[vhost] = found.delivered(marks[vhost], vhost, what)
        found.records.append(record)
        found.in_sync(what)
        new = ", ".join(self._new)
        found.say(f"{what}, {act.how}; leaders: {found.leaders()}; brokers of this version: {new or 'none'}")

    def _led(self, name: str) -> set[str]:
        """Return the virtual hosts that a broker leads, as their clients know it."""
        return {flow.vhost for flow in self._run.load.flows if flow.leader.current == name}

    def _until_new_leads(self) -> None:
        """Restart earlier brokers that lead, as they are, until one of this version leads a virtual host."""
        for _ in range(TURNS_MAX):
            leaders = [flow.leader.current for flow in self._run.load.flows]
            if any(leader in self._new for leader in leaders):
                return
            name = next((leader for leader in leaders if leader is not None), NAMES[-1])
            led, marks = self._led(name), self._run.load.mark()
            self._restart(name, self._brokers[name].program)
            self._check(marks, Act("restart", name, "not replaced", led))
        self._run.wrong.append(f"no broker of this version leads after {TURNS_MAX} restarts of others")

    def _cluster_command(self, program: str, *arguments: str) -> bool:
        """Run `penstock cluster`; return whether that version of it can, and did."""
        command = [program, "cluster", *arguments]
        return subprocess.run(command, capture_output=True, timeout=COMMAND_S, check=False).returncode == 0

    def _uri(self, name: str) -> str:
        return self._brokers[name].uri("", *USER)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos.rolling", description=__doc__)
    parser.add_argument("--previous", default=os.environ.get("CLUSTER_PREVIOUS") or FIRST, help="the earlier commit")
    parser.add_argument("--program", help="its command penstock, where it is built already")
    parser.add_argument("--seed", type=int, default=1, help="for the load")
    parser.add_argument("--rate", type=float, default=500, help="messages a second of each publisher")
    parser.add_argument("--seconds", type=float, default=MIXED_S, help="between two replacements")
    parser.add_argument("--directory", type=Path, default=Path("target/chaos"), help="for data and logs")
    parser.add_argument("--keep", action="store_true", help="leave data and logs")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
