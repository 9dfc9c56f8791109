"""A run: a cluster, a load, one fault after the other, and what was found."""

import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, Protocol

import trustme
from rich.console import Console

from chaos.faults import Fault, Kind, Link, draw
from chaos.injector import Injector
from chaos.load import USER, Load
from chaos.publisher import Mark
from chaos.report import FaultRecord, fault_table, verdict_table
from support.broker import BrokerError, Place
from support.serving_cluster import NAMES, ServingCluster

__all__ = ["Plan", "Surroundings", "run"]

CONFIRM_S: Final = 60.0
"""A virtual host without a confirm for this time after a fault has ended is stuck."""
SETTINGS: Final = f"""
default_user = "{USER[0]}"
default_password = "{USER[1]}"
segment_bytes_min = 65536
segment_bytes_max = 1048576
"""
BAD_WORDS: Final = ("replica halted", "replica failed", "Traceback", "panicked", "bug in", "queues not filled")
"""They must not be in the log of a broker that no one harmed."""


class Surroundings(Protocol):
    """The network that brokers run in."""

    @property
    def places(self) -> Mapping[str, Place]: ...

    def cut(self, links: Sequence[Link]) -> None: ...
    def heal(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run: its seed, its length and its faults."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    rate: float
    directory: Path
    fault_count_max: int = 1_000_000
    vhost_count: int = 3
    keeps: bool = False
    """Whether data and logs are left."""


def run(plan: Plan, network: Surroundings, console: Console) -> list[str]:
    """Run a plan, and print what happens and the verdict. Return what is wrong; its directory is left then."""
    shutil.rmtree(plan.directory, ignore_errors=True)
    plan.directory.mkdir(parents=True)
    cluster = ServingCluster(plan.directory, *flags(plan.directory, network.places), places=network.places)
    with cluster:
        try:
            wrong = Run(plan, cluster, network, console).run()
        except BrokerError as error:
            wrong = [f"a broker does not start or stop: {error}"]
    for each in wrong:
        console.print(f"[red]{each}[/red]", markup=True)
    if wrong or plan.keeps:
        console.print(f"data and logs are in {plan.directory}; CHAOS_SEED={plan.seed} repeats the faults")
    else:
        shutil.rmtree(plan.directory)
    return wrong


def flags(directory: Path, places: Mapping[str, Place]) -> list[str]:
    """Write the settings that all brokers share, and certificates for their network; return the flags for them."""
    config = directory / "penstock.toml"
    authority = trustme.CA()
    certificate = authority.issue_cert(*{place.host for place in places.values()})
    authority.cert_pem.write_to_path(str(directory / "ca.crt"))
    certificate.private_key_pem.write_to_path(str(directory / "peer.key"))
    certificate.cert_chain_pems[0].write_to_path(str(directory / "peer.crt"))
    tls = {"certificate": "peer.crt", "key": "peer.key", "ca": "ca.crt"}
    lines = [f'cluster_tls_{name} = "{(directory / file).absolute()}"' for name, file in tls.items()]
    config.write_text(SETTINGS + "\n".join(lines) + "\n")
    return ["--config", str(config)]


class Run:
    """One run on a cluster that has started."""

    def __init__(self, plan: Plan, cluster: ServingCluster, network: Surroundings, console: Console) -> None:
        self._plan = plan
        self._cluster = cluster
        self._console = console
        self._random = Random(plan.seed)
        self._load = Load(cluster, Random(plan.seed), plan.rate)
        self._injector = Injector(cluster, network)
        self._records: list[FaultRecord] = []
        self._wrong: list[str] = []
        self._began = time.monotonic()

    def run(self) -> list[str]:
        """Return what is wrong."""
        load = self._load
        load.prepare(self._plan.vhost_count)
        self._cluster.until_all_in_sync()
        self._say(f"leaders: {', '.join(f'{flow.vhost} {flow.leader.current}' for flow in load.flows)}")
        load.start()
        self._confirmed(load.mark(), "the start")
        self._faults()
        load.stop()
        self._in_sync("the end")
        self._say("draining")
        self._wrong += load.drain()
        self._report()
        return self._wrong

    def _faults(self) -> None:
        until = time.monotonic() + self._plan.seconds
        for number, fault in enumerate(draw(self._random, self._plan.kinds, len(self._load.flows))):
            if time.monotonic() > until or number >= self._plan.fault_count_max:
                return
            self._inject(fault)
            if fault.waits:
                self._in_sync(f"{fault.kind}")
            time.sleep(fault.calm_s)

    def _inject(self, fault: Fault) -> None:
        flow, names = self._load.flows[fault.vhost], list(NAMES)
        leaders = {each.vhost: each.leader.current for each in self._load.flows}
        target = fault.target(flow.leader.current or names[0], names)
        hits = fault.hits(target, names)
        self._injector.begin(fault, target)
        marks = self._load.mark()
        time.sleep(fault.seconds)
        self._injector.end(fault, target)
        seconds = self._confirmed(marks, f"{fault.kind} of {target}")
        record = FaultRecord(str(fault.kind))
        for vhost, value in seconds.items():
            (record.hit if leaders[vhost] in hits else record.other)[vhost] = value
        self._records.append(record)
        marked = {f"{vhost}{'*' if vhost in record.hit else ''}": value for vhost, value in seconds.items()}
        times = ", ".join(f"{vhost} {value:.2f}" for vhost, value in marked.items())
        self._say(f"{fault.kind} of {target} for {fault.seconds:.1f} s; confirms after {times} s")
        self._wrong += self._injector.problems
        self._injector.problems.clear()

    def _confirmed(self, marks: Mapping[str, Sequence[Mark]], what: str) -> dict[str, float]:
        """Wait until all publishers have confirms again; return the longest time of each virtual host."""
        until, found = time.monotonic() + CONFIRM_S, {}
        for vhost, each in marks.items():
            for mark in each:
                mark.confirmed.wait(max(0.0, until - time.monotonic()))
            if any(mark.seconds is None for mark in each):
                self._wrong.append(f"{vhost} has no confirm {CONFIRM_S:.0f} s after {what}")
            found[vhost] = max(time.monotonic() - mark.at if mark.seconds is None else mark.seconds for mark in each)
        return found

    def _in_sync(self, what: str) -> None:
        try:
            self._cluster.until_all_in_sync()
        except AssertionError:
            self._wrong.append(f"not all replicas are in sync after {what}")

    def _report(self) -> None:
        load, console = self._load, self._console
        console.print(fault_table(self._records))
        found = [(flow.vhost, flow.history, flow.history.verdicts()) for flow in load.flows]
        console.print(verdict_table(found))
        for name, count in load.errors().most_common(12):
            console.print(f"  {count:6} times: {name}", markup=False, soft_wrap=True)
        for vhost, _, verdicts in found:
            for verdict in verdicts:
                for name, each in verdict.broken():
                    samples = ", ".join(each.samples)
                    self._wrong.append(f"{each.count:,} {name} in {vhost} {verdict.queue}: {samples}")
        self._wrong += load.declarer.found.broken(load.declared())
        answered = len(load.declarer.found.declares_answered)
        console.print(f"{len(self._records)} faults; {answered} queues declared; {sums(found)}")
        self._wrong += complaints({name: broker.log for name, broker in self._cluster.brokers.items()})

    def _say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:7.1f} s  {text}", soft_wrap=True)


def sums(found: Sequence[tuple[str, object, Sequence[object]]]) -> str:
    """Return the verdict of all queues in one line."""
    totals = dict.fromkeys(("lost", "unexpected", "duplicates", "misplaced"), 0)
    for _, _, verdicts in found:
        for verdict in verdicts:
            for name in totals:
                totals[name] += getattr(verdict, name).count
    return ", ".join(f"{count:,} {name}" for name, count in totals.items())


def complaints(logs: Mapping[str, str]) -> list[str]:
    """Return the lines of logs that must not be there."""
    return [
        f"log of {name}: {line[:300]}"
        for name, text in logs.items()
        for line in text.splitlines()
        if any(word in line for word in BAD_WORDS)
    ][:20]
