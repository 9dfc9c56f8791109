"""The script that hits brokers with one fault after the other."""

import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Protocol

from rich.console import Console

from chaos.faults import Fault, Link, draw
from chaos.injector import Injector
from chaos.report import FaultRecord
from chaos.run import Findings, Plan, Run, run
from support.broker import Place
from support.serving_cluster import NAMES

__all__ = ["Surroundings", "run_faults"]


class Surroundings(Protocol):
    """The network that brokers run in."""

    @property
    def places(self) -> Mapping[str, Place]: ...

    def cut(self, links: Sequence[Link]) -> None: ...
    def heal(self) -> None: ...


def run_faults(plan: Plan, network: Surroundings, console: Console) -> Findings:
    """Run a plan with its faults."""
    return run(plan, network.places, console, lambda found: FaultScript(found, network).play())


class FaultScript:
    """The faults of one run, drawn from its seed."""

    def __init__(self, found: Run, network: Surroundings) -> None:
        self._run = found
        self._random = Random(found.plan.seed)
        self._injector = Injector(found.cluster, network, found.disks)

    def play(self) -> None:
        plan, flows = self._run.plan, self._run.load.flows
        until = time.monotonic() + plan.seconds
        for number, fault in enumerate(draw(self._random, plan.kinds, len(flows), plan.pace)):
            if time.monotonic() > until or number >= plan.fault_count_max:
                return
            self._inject(fault)
            if fault.waits:
                self._run.in_sync(f"{fault.kind}")
            time.sleep(fault.calm_s)

    def _inject(self, fault: Fault) -> None:
        found, injector, names = self._run, self._injector, list(NAMES)
        flows = found.load.flows
        leaders = {each.vhost: each.leader.current for each in flows}
        target = fault.target(flows[fault.vhost].leader.current or names[0], names)
        hits = fault.hits(target, names)
        injector.begin(fault, target)
        found.may_halt |= injector.halted
        marks = found.load.mark()
        time.sleep(fault.seconds)
        injector.end(fault, target)
        what = f"{fault.kind} of {target}"
        seconds = found.confirmed(marks, what)
        record = FaultRecord(str(fault.kind))
        for vhost, value in seconds.items():
            (record.hit if leaders[vhost] in hits else record.other)[vhost] = value
        for vhost in record.hit:
            record.delivered[vhost] = found.delivered(marks[vhost], vhost, what)
        found.records.append(record)
        found.say(f"{what} for {fault.seconds:.1f} s; confirms after {_texts(record, seconds)} s")
        found.wrong += injector.problems
        injector.problems.clear()


def _texts(record: FaultRecord, seconds: Mapping[str, float]) -> str:
    """Return the times of all virtual hosts; those that were hit have a star."""
    marked = {f"{vhost}{'*' if vhost in record.hit else ''}": value for vhost, value in seconds.items()}
    return ", ".join(f"{vhost} {value:.2f}" for vhost, value in marked.items())
