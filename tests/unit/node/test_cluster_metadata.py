"""Questions for the metadata's latest state: callers share a question, and its failure. Numbers of connections."""

import asyncio
from typing import Any, cast

import pytest

from penstock.cluster.meta.asking import Asker
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.commands import Addresses
from penstock.cluster.meta.decide import connection_in_cluster
from penstock.cluster.meta.log import NotLeaderError
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.cluster.translation import broker_number
from penstock.model.names import ConnectionId
from penstock.native import RelayOrigin
from penstock.node.in_cluster import metadata as module
from penstock.node.in_cluster.metadata import Metadata

CALLERS = 50


class SilentAsker:
    """No leader answers it until `answers` is set."""

    def __init__(self) -> None:
        self.question_count = 0
        self.answers = asyncio.Event()

    async def latest(self) -> None:
        self.question_count += 1
        await self.answers.wait()


def metadata_of(asker: SilentAsker) -> Metadata:
    state = MetaState()
    return Metadata(BrokerName("mq-0"), cast(Asker, asker), lambda: state, lambda: 1, cast(Any, None))


async def ask_together(metadata: Metadata) -> list[Any]:
    return await asyncio.gather(*(metadata.latest() for _ in range(CALLERS)), return_exceptions=True)


def test_callers_that_wait_together_do_not_wait_one_after_another_when_nobody_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "QUESTION_S", 0.01)

    async def scenario() -> None:
        asker = SilentAsker()

        outcomes = await ask_together(metadata_of(asker))

        assert all(isinstance(outcome, NotLeaderError) for outcome in outcomes)
        assert asker.question_count == 2

    asyncio.run(scenario())


def test_a_question_after_one_that_nobody_answered_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        asker = SilentAsker()
        metadata = metadata_of(asker)
        with monkeypatch.context() as briefly:
            briefly.setattr(module, "QUESTION_S", 0.01)
            await ask_together(metadata)
        asker.answers.set()

        await metadata.latest()

        assert asker.question_count == 3

    asyncio.run(scenario())


def test_a_relayed_connection_has_the_number_that_it_has_where_it_is_relayed_from() -> None:
    metadata = metadata_of(SilentAsker())
    metadata.state.brokers[BrokerName("mq-1")] = BrokerPut(BrokerName("mq-1"), 1, 7, False, Addresses())
    origins = {
        ConnectionId(5): RelayOrigin(broker=broker_number("mq-1"), connection=40),
        ConnectionId(6): RelayOrigin(broker=broker_number("mq-9"), connection=40),
    }
    metadata.origin_of = origins.get

    assert metadata.number_of(ConnectionId(4)) == connection_in_cluster(ConnectionId(4), 1)
    assert metadata.number_of(ConnectionId(5)) == connection_in_cluster(ConnectionId(40), 7)
    # No session has the number 0, so that of a broker that is gone has no queues.
    assert metadata.number_of(ConnectionId(6)) == connection_in_cluster(ConnectionId(40), 0)


def test_a_connection_keeps_the_number_that_it_has_in_the_cluster() -> None:
    number = connection_in_cluster(ConnectionId(40), 7)

    assert number != ConnectionId(40)
    assert connection_in_cluster(number, 8) == number
