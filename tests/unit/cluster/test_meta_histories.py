"""Random histories of a cluster's metadata: elections, lost and repeated messages, kills, removed records.

In the end all brokers have the same state and the files of one broker that ran the same commands; each command was
carried out at most once, and those that were answered exactly once.
"""

import asyncio
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from penstock.cluster.meta.asking import Asker
from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.checkpoint import checkpoint_of
from penstock.cluster.meta.codec import RECORDS
from penstock.cluster.meta.commands import CreateVhost, MetaCommand
from penstock.cluster.meta.log import UnknownOutcomeError
from penstock.cluster.meta.state import MetaState
from penstock.metadata import VhostTopology
from penstock.model.errors import NotFoundError, RefusedError, StoppedError, Thing
from penstock.model.names import VhostName
from support.meta_cluster import MetaBroker, MetaCluster, run_inline
from support.meta_commands import random_command
from support.meta_log import SharedLog
from support.single_broker import files_of_a_single_broker, meaning_of, metadata_files

pytestmark = pytest.mark.slow
NAMES = ["mq-0", "mq-1", "mq-2"]
SEEDS = int(os.environ.get("META_SEEDS", "12"))
FIRST_SEED = int(os.environ.get("META_SEED", "1"))
STEPS = 60


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor: None)


class History:
    """What clients asked, and what they heard."""

    def __init__(self, cluster: MetaCluster, random: Random) -> None:
        self.asked: dict[tuple[int, int], MetaCommand] = {}
        self.answered: set[tuple[int, int]] = set()
        self._cluster = cluster
        self._random = random
        self._clients: set[asyncio.Task[None]] = set()

    def ask(self, broker: MetaBroker, session: int) -> None:
        """Ask as a client of a broker does, and do not wait."""
        task = asyncio.ensure_future(self._ask(broker.asker, session))
        self._clients.add(task)
        task.add_done_callback(self._clients.discard)

    async def _ask(self, asker: Asker, session: int) -> None:
        command = random_command(self._random, session)
        request = (session, cast(Any, asker)._next_number)
        self.asked[request] = command
        with suppress(RefusedError, UnknownOutcomeError, StoppedError):
            await asker.submit(command)
            self.answered.add(request)

    async def drain(self) -> None:
        """Wait for the clients of brokers that are alive."""
        while self._clients:
            await asyncio.wait(set(self._clients), timeout=30)

    def forget(self) -> None:
        """End the clients, as when their broker is killed."""
        for client in list(self._clients):
            client.cancel()


async def play(seed: int, root: Path) -> None:
    random = Random(seed)
    log = SharedLog(random, random.choice([0.0, 0.1, 0.3]))
    cluster = MetaCluster(log, root, NAMES, random.choice([3, 7, 1000]))
    history = History(cluster, random)
    sessions: dict[str, int] = {}
    for broker in cluster.brokers.values():
        await broker.start()
    log.elect("mq-0")
    for _ in range(STEPS):
        await disturb(random, cluster, history, sessions)
        for broker in cluster.alive():
            if broker.name in sessions:
                history.ask(broker, sessions[broker.name])
        if random.random() < 0.3:
            cluster.shorten()
        await log.wait()
    await settle(cluster, history)
    check(cluster, history, await single(root, cluster, history))
    for broker in cluster.alive():
        await broker.kill()


async def disturb(random: Random, cluster: MetaCluster, history: History, sessions: dict[str, int]) -> None:
    """Elect, kill, start or join, or do nothing."""
    broker = random.choice(list(cluster.brokers.values()))
    chance = random.random()
    if chance < 0.15 or (cluster.log.leader is None and chance < 0.5):
        cluster.log.elect(random.choice([None, *NAMES]))
    elif chance < 0.25 and broker.leader is not None:
        sessions.pop(broker.name, None)
        await broker.kill()
    elif broker.leader is None and chance < 0.6:
        await broker.start()
    elif broker.leader is not None and broker.name not in sessions:
        join = asyncio.ensure_future(broker.join())
        for _ in range(200):
            await asyncio.sleep(0)
            if join.done():
                sessions[broker.name] = join.result()
                return
        join.cancel()


async def settle(cluster: MetaCluster, history: History) -> None:
    """End all faults, and wait until every broker has everything."""
    cluster.log.loses = 0.0
    for broker in cluster.brokers.values():
        if broker.leader is None:
            await broker.start()
    cluster.log.elect("mq-0")
    await history.drain()
    for broker in cluster.brokers.values():
        await broker.join()
        await broker.applier.applied(cluster.log.end)


def check(cluster: MetaCluster, history: History, wanted: dict[str, bytes]) -> None:
    records = records_of(cluster)
    made = [(record.session, record.number) for record in records if record.session]
    assert len(made) == len(set(made)), "a command was carried out twice"
    assert set(made) <= history.asked.keys()
    states = {checkpoint_of(broker.state) for broker in cluster.alive()}
    assert len(states) == 1
    for broker in cluster.alive():
        broker.state.check_invariants()
        assert meaning_of(metadata_files(broker.directory)) == meaning_of(wanted), broker.name


def records_of(cluster: MetaCluster) -> list[Record]:
    return [RECORDS.decode(each.content) for each in cluster.log.committed if each.content is not None]


async def single(root: Path, cluster: MetaCluster, history: History) -> dict[str, bytes]:
    requests = [(record.session, record.number) for record in records_of(cluster) if record.session]
    commands = [(history.asked[request], request[0]) for request in requests]
    return await files_of_a_single_broker(root / "single", commands)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_all_brokers_have_the_state_and_the_files_of_one(seed: int, tmp_path: Path) -> None:
    run_inline(play(seed, tmp_path))


def vhost_of(name: VhostName, state: MetaState) -> VhostTopology:
    if name not in state.vhosts:
        raise NotFoundError(Thing("vhost", name))
    return state.vhosts[name]


def test_an_answered_command_is_found_on_every_broker_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        log = SharedLog(Random(1))
        cluster = MetaCluster(log, tmp_path, NAMES, 1000)
        for broker in cluster.brokers.values():
            await broker.start()
        log.elect("mq-0")
        for broker in cluster.brokers.values():
            await broker.join()
        one, *others = cluster.brokers.values()
        for number in range(20):
            name = VhostName(f"vhost-{number}")
            await one.asker.submit(CreateVhost(name))
            for other in others:
                assert (await other.asker.find(partial(vhost_of, name))).vhost == name
            with pytest.raises(NotFoundError):
                await others[0].asker.find(partial(vhost_of, VhostName("none")))
        for broker in cluster.alive():
            await broker.kill()

    run_inline(run())
