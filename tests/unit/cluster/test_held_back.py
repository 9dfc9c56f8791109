"""A command of a later version waits until every broker is known to read its records."""

import asyncio
from pathlib import Path
from random import Random

import pytest

from penstock.cluster.meta import held_back
from penstock.cluster.meta.commands import CreateVhost, MetaCommand, SetReplicaCount
from penstock.cluster.meta.held_back import NEEDED, check_known
from penstock.cluster.meta.leading import Leader
from penstock.metadata.effects import Done
from penstock.model.errors import PreconditionFailedError
from penstock.model.names import VhostName
from support.meta_cluster import MetaCluster, run_inline
from support.meta_log import SharedLog

LATER: dict[type[MetaCommand], int] = {SetReplicaCount: 2}


def test_a_command_is_held_back_as_long_as_a_broker_may_not_know_its_changes() -> None:
    with pytest.raises(PreconditionFailedError, match="needs version 2 of the protocol between brokers"):
        check_known(SetReplicaCount(1), 1, LATER)

    check_known(SetReplicaCount(1), 2, LATER)
    check_known(CreateVhost(VhostName("shop")), 1, LATER)


def test_the_commands_of_the_first_version_are_never_held_back() -> None:
    assert dict(NEEDED) == {}


def test_the_leader_refuses_it_until_all_brokers_know_the_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_back, "NEEDED", LATER)

    async def run() -> None:
        cluster = MetaCluster(SharedLog(Random(1)), tmp_path, ["mq-0"], 1000)
        (broker,) = cluster.brokers.values()
        await broker.start()
        cluster.log.elect("mq-0")
        await broker.join()
        used = 1
        assert isinstance(broker.leader, Leader)
        broker.leader._protocol = lambda: used

        with pytest.raises(PreconditionFailedError, match="upgrade and start all brokers"):
            await broker.asker.submit(SetReplicaCount(1))
        assert await broker.asker.submit(CreateVhost(VhostName("shop"))) == Done()
        used = 2
        assert await asyncio.wait_for(broker.asker.submit(SetReplicaCount(1)), 60) == Done()
        await broker.kill()

    run_inline(run())
