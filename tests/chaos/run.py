"""A run: a cluster, a load, a script of what happens to the brokers, and what was found."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import trustme
from rich.console import Console

from chaos.disks import Disks
from chaos.faults import DISK_KINDS, Kind, Pace
from chaos.load import USER, Load, Marks
from chaos.mark import Mark
from chaos.report import FaultRecord, fault_table, verdict_table
from support.broker import BrokerError, Place
from support.serving_cluster import ServingCluster

__all__ = ["FAULT_COUNT_MAX", "Findings", "Plan", "Run", "Script", "run"]

CONFIRM_S: Final = 60.0
"""A virtual host without a confirm, or a delivery, for this time after a fault has ended is stuck."""
FAULT_COUNT_MAX: Final = 1_000_000
"""The faults of a run that ends by its time."""
SETTINGS: Final = f"""
default_user = "{USER[0]}"
default_password = "{USER[1]}"
segment_bytes_min = 65536
segment_bytes_max = 1048576
"""
BAD_WORDS: Final = ("replica halted", "replica failed", "Traceback", "panicked", "bug in", "queues not filled")
"""They must not be in the log of a broker that no one harmed."""
OF_A_HALT: Final = ("replica halted", "replica failed")
"""They may be in the log of a broker whose disk was full."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The options of a run: its seed, its length and its faults."""

    seed: int
    seconds: float
    kinds: Sequence[Kind]
    rate: float
    directory: Path
    fault_count_max: int = FAULT_COUNT_MAX
    vhost_count: int = 3
    keeps: bool = False
    """Whether data and logs are left."""
    pace: Pace | None = None
    """The times of the faults, where they are not drawn by kind."""
    shards: int = 1
    """The shards of each virtual host."""
    program: str | None = None
    """The command `penstock` of the brokers, where it is not that of this checkout."""


@dataclass(frozen=True, slots=True)
class Findings:
    """The promises that were broken, and the effects of each fault."""

    wrong: list[str] = field(default_factory=list)
    records: list[FaultRecord] = field(default_factory=list)


def run(plan: Plan, places: Mapping[str, Place], console: Console, script: "Script") -> Findings:
    """Run a script, and print what happens and the verdict. Its directory is left if anything is wrong."""
    shutil.rmtree(plan.directory, ignore_errors=True)
    plan.directory.mkdir(parents=True)
    shared = flags(plan.directory, places)
    with ExitStack() as running:
        needs_disks = not DISK_KINDS.isdisjoint(plan.kinds)
        disks = running.enter_context(Disks(plan.directory, places)) if needs_disks else None
        cluster = running.enter_context(
            ServingCluster(plan.directory, *shared, places=places, program=plan.program, shards=1)
        )
        try:
            found = Run(plan, cluster, disks, console).run(script)
        except BrokerError as error:
            found = Findings([f"a broker does not start or stop: {error}"])
    for each in found.wrong:
        console.print(f"[red]{each}[/red]", markup=True)
    if found.wrong or plan.keeps:
        console.print(f"data and logs are in {plan.directory}; CHAOS_SEED={plan.seed} repeats the faults")
    else:
        shutil.rmtree(plan.directory)
    return found


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
    """One run on a cluster that has started. A script has it, and enters what is wrong."""

    def __init__(self, plan: Plan, cluster: ServingCluster, disks: Disks | None, console: Console) -> None:
        self.plan = plan
        self.cluster = cluster
        self.disks = disks
        self.may_halt: set[str] = set()
        self.load = Load(cluster, Random(plan.seed), plan.rate, plan.shards)
        self.records: list[FaultRecord] = []
        self.wrong: list[str] = []
        self._console = console
        self._began = time.monotonic()

    def run(self, script: "Script") -> Findings:
        load = self.load
        load.prepare(self.plan.vhost_count)
        self.cluster.until_all_in_sync()
        self.say(f"leaders: {self.leaders()}")
        load.start()
        self.confirmed(load.mark(), "the start")
        script(self)
        load.stop()
        self.in_sync("the end")
        self.say("draining")
        self.wrong += load.drain()
        self._report()
        return Findings(self.wrong, self.records)

    def leaders(self) -> str:
        """Return who leads each virtual host, as its clients know it."""
        return ", ".join(f"{flow.vhost} {flow.leader.current}" for flow in self.load.flows)

    def confirmed(self, marks: Mapping[str, Marks], what: str) -> dict[str, float]:
        """Wait until all publishers have confirms again; return the longest time of each virtual host."""
        return {vhost: self._reached(each.confirms, f"confirm in {vhost}", what) for vhost, each in marks.items()}

    def delivered(self, marks: Marks, vhost: str, what: str) -> float:
        """Wait until there are deliveries again; return the time until then."""
        return self._reached(marks.deliveries, f"delivery in {vhost}", what)

    def in_sync(self, what: str) -> None:
        """Wait until all replicas are in sync."""
        try:
            self.cluster.until_all_in_sync()
        except AssertionError:
            self.wrong.append(f"not all replicas are in sync after {what}")

    def say(self, text: str) -> None:
        self._console.print(f"{time.monotonic() - self._began:7.1f} s  {text}", soft_wrap=True)

    def _reached(self, marks: Sequence[Mark], thing: str, what: str) -> float:
        """Wait until all marks are reached, and return the longest time of them."""
        until = time.monotonic() + CONFIRM_S
        for mark in marks:
            mark.reached.wait(max(0.0, until - time.monotonic()))
        if any(mark.seconds is None for mark in marks):
            self.wrong.append(f"no {thing} {CONFIRM_S:.0f} s after {what}")
        return max(time.monotonic() - mark.at if mark.seconds is None else mark.seconds for mark in marks)

    def _report(self) -> None:
        load, console = self.load, self._console
        console.print(fault_table(self.records))
        found = [(flow.vhost, flow.history, flow.history.verdicts()) for flow in load.flows]
        console.print(verdict_table(found))
        for name, count in load.errors().most_common(12):
            console.print(f"  {count:6} times: {name}", markup=False, soft_wrap=True)
        for vhost, _, verdicts in found:
            for verdict in verdicts:
                for name, each in verdict.broken():
                    samples = ", ".join(each.samples)
                    self.wrong.append(f"{each.count:,} {name} in {vhost} {verdict.queue}: {samples}")
        self.wrong += load.declarer.found.broken(load.declared())
        answered = len(load.declarer.found.declares_answered)
        console.print(f"{len(self.records)} faults; {answered} queues declared; {sums(found)}")
        logs = {name: broker.log for name, broker in self.cluster.brokers.items()}
        self.wrong += complaints(logs, self.may_halt)


Script: TypeAlias = Callable[[Run], None]
"""The faults of a run: each is caused, and the brokers are watched until it is over."""


def sums(found: Sequence[tuple[str, object, Sequence[object]]]) -> str:
    """Return the verdict of all queues in one line."""
    totals = dict.fromkeys(("lost", "unexpected", "duplicates", "misplaced"), 0)
    for _, _, verdicts in found:
        for verdict in verdicts:
            for name in totals:
                totals[name] += getattr(verdict, name).count
    return ", ".join(f"{count:,} {name}" for name, count in totals.items())


def complaints(logs: Mapping[str, str], may_halt: AbstractSet[str]) -> list[str]:
    """Return the lines of logs that must not be there."""
    return [
        f"log of {name}: {line[:300]}"
        for name, text in logs.items()
        for line in text.splitlines()
        if any(word in line for word in BAD_WORDS)
        and not (name in may_halt and any(word in line for word in OF_A_HALT))
    ][:20]
