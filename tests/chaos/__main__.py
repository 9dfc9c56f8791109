"""Faults for three real brokers of a cluster under load, and the verdict of their histories: `make chaos`.

The exit status is 1 when anything that was confirmed is lost, or another promise is broken. Faults and load are drawn
from a seed, which is printed; when a process reaches which step is not, so a seed repeats a run roughly.
"""

import argparse
import os
import sys
from pathlib import Path
from random import Random

from rich.console import Console

from chaos.disks import are_possible
from chaos.fault_script import run_faults
from chaos.faults import DISK_KINDS, NETWORK_KINDS, kinds_of
from chaos.network import Loopback, Network, enter_own_network
from chaos.run import FAULT_COUNT_MAX, Plan
from support.serving_cluster import NAMES

LINE_WIDTH = 140


def main() -> int:
    options = parse(sys.argv[1:])
    console = Console(width=None if sys.stdout.isatty() else LINE_WIDTH, highlight=False)
    has_network = enter_own_network()
    kinds = kinds_of(options.kinds)
    if not has_network:
        console.print("this machine allows no network namespaces: there are no partitions")
        kinds = [kind for kind in kinds if kind not in NETWORK_KINDS]
    if not DISK_KINDS.isdisjoint(kinds) and not are_possible():
        console.print("this machine allows no file systems for brokers: none loses its power, and none is full")
        kinds = [kind for kind in kinds if kind not in DISK_KINDS]
    seed = options.seed or Random().randrange(1, 1_000_000)
    console.print(f"CHAOS_SEED={seed} CHAOS_MINUTES={options.minutes:g} CHAOS_KINDS={','.join(kinds)}")
    directory = options.directory / str(seed)
    length = (options.minutes * 60, kinds, options.rate, directory, options.faults)
    plan = Plan(seed, *length, keeps=options.keep, shards=options.shards)
    with Network(NAMES) if has_network else Loopback(NAMES) as network:
        return 1 if run_faults(plan, network, console).wrong else 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("CHAOS_MINUTES") or 10))
    parser.add_argument("--seed", type=int, default=int(os.environ.get("CHAOS_SEED") or 0), help="0: draw one")
    parser.add_argument("--faults", type=int, default=FAULT_COUNT_MAX, help="end after this many, also before the time")
    parser.add_argument("--kinds", default=os.environ.get("CHAOS_KINDS", ""), help="kinds of faults, by commas")
    parser.add_argument(
        "--rate",
        type=float,
        default=float(os.environ.get("CHAOS_RATE") or 500),
        help="messages a second of each publisher; 0: as many as are confirmed",
    )
    parser.add_argument(
        "--shards", type=int, default=int(os.environ.get("CHAOS_SHARDS") or 3), help="shards of each virtual host"
    )
    parser.add_argument("--directory", type=Path, default=Path("target/chaos"), help="for data and logs")
    parser.add_argument("--keep", action="store_true", help="leave data and logs")
    options = parser.parse_args(arguments)
    if options.minutes <= 0:
        parser.error("--minutes must be more than 0")
    if options.faults < 1:
        parser.error("--faults must be at least 1")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
