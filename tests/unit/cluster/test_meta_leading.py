"""A leader of the metadata that meets a bug, or has ended, and a broker that can apply nothing any more."""

import asyncio
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from penstock.cluster.hosted import HostedReplica
from penstock.cluster.meta import leading
from penstock.cluster.meta.applying import Applier
from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.commands import CreateVhost, MetaAnswer, MetaCommand, PutUser, Request
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.leading import Leader
from penstock.cluster.meta.log import MetaLog, NotLeaderError
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.replicated_log import ReplicatedMetaLog
from penstock.cluster.meta.resigning import resign_after
from penstock.kit.tasks import spawn
from penstock.metadata.effects import Done
from penstock.model.errors import RefusedError, StoppedError
from penstock.model.names import VhostName
from penstock.native import Replica
from support.meta_cluster import MetaCluster, run_inline
from support.meta_commands import DIGEST
from support.meta_log import SharedLog


def decide_with_a_bug(state: PendingState, request: Request) -> Record | MetaAnswer:
    """Change a part of the state and fail, for one kind of command."""
    if isinstance(request.command, PutUser):
        state.next_session += 1
        raise KeyError
    return decide(state, request)


def test_a_request_that_meets_a_bug_is_refused_and_the_others_are_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leading, "decide", decide_with_a_bug)

    async def run() -> None:
        cluster = MetaCluster(SharedLog(Random(1)), tmp_path, ["mq-0"], 1000)
        (broker,) = cluster.brokers.values()
        await broker.start()
        cluster.log.elect("mq-0")
        await broker.join()

        asked: tuple[MetaCommand, ...] = (
            CreateVhost(VhostName("shop")),
            PutUser("ann", (), DIGEST, "argon2id"),
            CreateVhost(VhostName("bay")),
        )
        answers = await asyncio.gather(*map(broker.asker.submit, asked), return_exceptions=True)

        assert answers[::2] == [Done(), Done()]
        assert isinstance(answers[1], RefusedError)
        assert "because of a bug" in str(answers[1])
        assert (set(broker.state.vhosts), broker.state.next_session) == ({"shop", "bay"}, 2)
        await broker.kill()

    run_inline(run())


def test_a_request_to_the_leader_of_an_earlier_epoch_is_not_carried_out(tmp_path: Path) -> None:
    """The one that sent it may have been refused by the leader in between, and may have said so to its client."""

    async def run() -> None:
        cluster = MetaCluster(SharedLog(Random(1)), tmp_path, ["mq-0"], 1000)
        (broker,) = cluster.brokers.values()
        await broker.start()
        cluster.log.elect("mq-0")
        session, epoch = await broker.join(), cluster.log.epoch
        assert broker.leader is not None
        cluster.log.elect("mq-1")
        cluster.log.elect("mq-0")

        late = Request(session, 1, 1, CreateVhost(VhostName("shop")))
        with pytest.raises(NotLeaderError):
            await broker.leader.request(late, epoch)

        assert broker.state.vhosts == {}
        await broker.leader.request(late, cluster.log.epoch)
        assert set(broker.state.vhosts) == {"shop"}
        await broker.kill()

    run_inline(run())


def test_a_broker_that_applies_nothing_any_more_asks_for_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = MetaCluster(SharedLog(Random(1)), tmp_path, ["mq-0", "mq-1"], 1000)
        for each in cluster.brokers.values():
            await each.start()
        cluster.log.elect("mq-0")
        broker = cluster.brokers["mq-1"]
        await broker.join()
        await broker.kill()

        with pytest.raises(StoppedError, match="the broker stops"):
            await broker.asker.submit(CreateVhost(VhostName("shop")))

        assert cluster.brokers["mq-0"].state.vhosts == {}
        await cluster.brokers["mq-0"].kill()

    run_inline(run())


def test_a_leader_that_has_ended_takes_no_requests() -> None:
    async def run() -> None:
        leader = Leader(cast(MetaLog, None), cast(Applier, None))
        task = asyncio.ensure_future(leader.run())
        await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

        with pytest.raises(StoppedError, match="has stopped on this broker"):
            await leader.request(Request(1, 1, 1, CreateVhost(VhostName("shop"))), epoch=1)

    asyncio.run(run())


def test_a_replica_that_follows_is_not_asked_for_its_standing() -> None:
    """It has none while a copy takes the place of its log, and that ended the leader of this broker for good."""

    async def run() -> None:
        replica = HostedReplica(cast(Replica, None), bytes(16))

        with pytest.raises(NotLeaderError):
            await ReplicatedMetaLog(replica, cast(Any, None)).begin()

    asyncio.run(run())


def test_the_shard_is_handed_over_again_and_again_once_a_worker_has_ended() -> None:
    async def run() -> None:
        fails, handed_over = asyncio.Event(), asyncio.Semaphore(0)

        async def worker() -> None:
            await fails.wait()
            raise AssertionError

        async def forever() -> None:
            await asyncio.Event().wait()

        async def hand_over() -> None:
            assert fails.is_set()
            handed_over.release()

        workers = [spawn(worker(), name="worker"), spawn(forever(), name="other")]
        task = spawn(resign_after(workers, hand_over, pause_s=0), name="resigning")
        await asyncio.sleep(0)
        fails.set()
        for _ in range(3):
            await handed_over.acquire()

        assert not task.done()
        for each in (task, workers[1]):
            each.cancel()

    asyncio.run(run())
