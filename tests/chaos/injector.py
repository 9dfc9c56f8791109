"""Carries faults out on the processes of brokers, their network and their files."""

import os
import re
import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from chaos.disks import Disks
from chaos.faults import DAMAGES, DISK_KINDS, NETWORK_KINDS, Fault, Kind, Link
from support.broker import Broker, BrokerError
from support.serving_cluster import ServingCluster

__all__ = ["Injector", "Switch"]

_DIRECTORY: Final = re.compile(r"start failed.*?/mq-\d/([0-9a-z]+)\b")
"""A line of a log that names the directory of the metadata, which were not opened. Other replicas begin anew."""


class Switch(Protocol):
    """The network between the brokers."""

    def cut(self, links: Sequence[Link]) -> None: ...
    def heal(self) -> None: ...


class Injector:
    """Begins a fault and ends it: afterwards all brokers run, and reach each other."""

    def __init__(self, cluster: ServingCluster, switch: Switch, disks: Disks | None) -> None:
        self._cluster = cluster
        self._switch = switch
        self._disks = disks
        self._brokers = cluster.brokers
        self.problems: list[str] = []
        """Descriptions of brokers that ended by themselves, or stopped with an error."""
        self.halted: set[str] = set()
        """Brokers whose replicas may have halted, because their disks were full."""
        self._moved_count = 0

    def begin(self, fault: Fault, target: str) -> None:
        if fault.kind in NETWORK_KINDS:
            self._switch.cut(list(fault.cuts(target, list(self._brokers))))
        elif fault.kind in DISK_KINDS:
            self._begin_at_disk(fault, target)
        elif fault.kind in DAMAGES:
            self._brokers[target].kill()
            _damage(self._brokers[target].data_dir, fault)
        else:
            self._begin_at_process(fault, target)

    def _begin_at_process(self, fault: Fault, target: str) -> None:
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

    def _begin_at_disk(self, fault: Fault, target: str) -> None:
        if fault.kind == Kind.FULL_DISK:
            self.halted.add(target)
            self._own_disks.fill(target)
            return
        hit = [target] if fault.kind == Kind.POWER else list(self._brokers)
        for name in hit:
            self._brokers[name].kill()
        for name in hit:
            self._own_disks.lose_power(name)

    def end(self, fault: Fault, target: str) -> None:
        """End the fault. Raises BrokerError when a broker does not come back."""
        if fault.kind == Kind.PAUSE:
            os.kill(self._brokers[target].pid, signal.SIGCONT)
        self._switch.heal()
        self.check_running(fault, target)
        broker = self._brokers[target]
        if fault.kind in DAMAGES:
            self._start_corrupt(broker)
        if fault.kind == Kind.FULL_DISK:
            self._own_disks.free(target)
            # As an operator does whose disk has space again.
            if broker.is_running:
                broker.kill()
        self.start_all()

    def start_all(self) -> None:
        stopped = [broker for broker in self._brokers.values() if not broker.is_running]
        with ThreadPoolExecutor(max(1, len(stopped))) as threads:
            list(threads.map(Broker.start, stopped))

    def _start_corrupt(self, broker: Broker) -> None:
        """Start a broker, and do what its log tells an operator: move the directory of corrupt metadata away."""
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
        killed = {Kind.KILL_LEADER, Kind.KILL_FOLLOWER, Kind.RESTART, Kind.POWER, Kind.FULL_DISK, *DAMAGES}
        expected = {target} if fault.kind in killed else set()
        if fault.kind in (Kind.KILL_ALL, Kind.POWER_OF_ALL):
            expected = set(self._brokers)
        for name, broker in self._brokers.items():
            if not broker.is_running and name not in expected:
                last = " | ".join(broker.log.splitlines()[-3:])
                self.problems.append(f"{name} ended by itself during {fault.kind} of {target}: {last}")

    @property
    def _own_disks(self) -> Disks:
        assert self._disks is not None, "without disks of their own, brokers have no such fault"
        return self._disks


def _damage(data_dir: Path, fault: Fault) -> None:
    """Change or cut the largest file of a broker's logs."""
    logs = (path for pattern in ("*/msgs.*", "*/logs/*/msgs.*") for path in data_dir.glob(pattern))
    log = max(logs, key=lambda path: path.stat().st_size, default=None)
    if log is None or not log.stat().st_size:
        return
    at = int(fault.picks[1] * log.stat().st_size)
    if fault.kind == Kind.TRUNCATE:
        os.truncate(log, at)
        return
    with log.open("r+b") as file:
        file.seek(at)
        old = file.read(1)
        file.seek(at)
        file.write(bytes([old[0] ^ 1]))
