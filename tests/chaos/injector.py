"""Carries faults out on the processes of brokers, their network and their files."""

import os
import re
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from chaos.faults import Fault, Kind, Link
from support.broker import Broker, BrokerError
from support.serving_cluster import ServingCluster

__all__ = ["Injector", "Switch"]

_DIRECTORY: Final = re.compile(r"(?:replica not opened|start failed).*?/mq-\d/([0-9a-z]+)\b")
"""A line of a log that names the directory of a replica which was not opened."""


class Switch(Protocol):
    """The network between the brokers."""

    def cut(self, links: Sequence[Link]) -> None: ...
    def heal(self) -> None: ...


class Injector:
    """Begins a fault and ends it: afterwards all brokers run, and reach each other."""

    def __init__(self, cluster: ServingCluster, switch: Switch) -> None:
        self._cluster = cluster
        self._switch = switch
        self._brokers = cluster.brokers
        self.problems: list[str] = []
        """Descriptions of brokers that ended by themselves, or stopped with an error."""
        self._moved_count = 0

    def begin(self, fault: Fault, target: str) -> None:
        broker = self._brokers[target]
        match fault.kind:
            case Kind.KILL_LEADER | Kind.KILL_FOLLOWER:
                broker.kill()
            case Kind.KILL_ALL:
                for each in self._brokers.values():
                    each.kill()
            case Kind.RESTART:
                status = broker.stop()
                if status:
                    self.problems.append(f"{target} stopped with status {status}")
            case Kind.PAUSE:
                os.kill(broker.pid, signal.SIGSTOP)
            case Kind.CORRUPT:
                broker.kill()
                flip_byte(broker.data_dir, fault.picks[1])
            case _:
                self._switch.cut(list(fault.cuts(target, list(self._brokers))))

    def end(self, fault: Fault, target: str) -> None:
        """End the fault. Raises BrokerError when a broker does not come back."""
        if fault.kind == Kind.PAUSE:
            os.kill(self._brokers[target].pid, signal.SIGCONT)
        self._switch.heal()
        self.check_running(fault, target)
        if fault.kind == Kind.CORRUPT:
            self._start_corrupt(self._brokers[target])
        self.start_all()

    def start_all(self) -> None:
        stopped = [broker for broker in self._brokers.values() if not broker.is_running]
        with ThreadPoolExecutor(max(1, len(stopped))) as threads:
            list(threads.map(Broker.start, stopped))

    def _start_corrupt(self, broker: Broker) -> None:
        """Start a broker, and do what its log tells an operator: move the directory of a corrupt replica away."""
        seen = len(broker.log)
        with suppress(BrokerError):
            broker.start()
        corrupt = {name for name in _DIRECTORY.findall(broker.log[seen:]) if (broker.data_dir / name).is_dir()}
        if corrupt and broker.is_running:
            broker.kill()
        for name in corrupt:
            self._moved_count += 1
            (broker.data_dir / name).rename(broker.data_dir.parent / f"moved-{self._moved_count}")

    def check_running(self, fault: Fault, target: str) -> None:
        """Enter the brokers that ended by themselves."""
        killed = {Kind.KILL_LEADER, Kind.KILL_FOLLOWER, Kind.RESTART, Kind.CORRUPT}
        expected = set(self._brokers) if fault.kind == Kind.KILL_ALL else {target} if fault.kind in killed else set()
        for name, broker in self._brokers.items():
            if not broker.is_running and name not in expected:
                last = " | ".join(broker.log.splitlines()[-3:])
                self.problems.append(f"{name} ended by itself during {fault.kind} of {target}: {last}")


def flip_byte(data_dir: Path, at: float) -> None:
    """Change a byte of the largest log of a broker."""
    logs = sorted(data_dir.glob("*/msgs.*"), key=lambda path: path.stat().st_size)
    if logs and logs[-1].stat().st_size:
        with logs[-1].open("r+b") as file:
            place = int(at * logs[-1].stat().st_size)
            file.seek(place)
            old = file.read(1)
            file.seek(place)
            file.write(bytes([old[0] ^ 1]))
