"""Brokers that are added to a cluster that runs, join it, and get replicas of new virtual hosts."""

import pytest

from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.commands import (
    AddBroker,
    Addresses,
    CreateVhost,
    FoundCluster,
    JoinBroker,
    Joined,
    MetaAnswer,
    MetaCommand,
    PlaceVhost,
    RemoveBroker,
    Request,
)
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.metadata.effects import Done
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError
from penstock.model.names import VhostName
from support.meta_commands import DIGEST

FIRST, NEW, SHOP = BrokerName("mq-0"), BrokerName("mq-1"), VhostName("shop")
PEERS = "10.0.0.6:5681"


class Cluster:
    """The state of a cluster of one broker that has begun, and commands on it."""

    def __init__(self) -> None:
        self.state = MetaState()
        self._number = 0
        self._session = 0
        self._session = self.join(FIRST, None)
        self.do(FoundCluster((FIRST,), VhostName("/"), "guest", DIGEST, "argon2id"))

    def do(self, command: MetaCommand) -> MetaAnswer:
        self._number += 1
        decided = decide(PendingState(self.state), Request(self._session, self._number, 0, command))
        if not isinstance(decided, Record):
            return decided
        self.state.apply(decided, self._number)
        self.state.check_invariants()
        return decided.answer

    def join(self, broker: BrokerName, replaces: int | None) -> int:
        answer = self.do(JoinBroker(broker, 7, replaces, Addresses(f"{broker}:5681")))
        assert isinstance(answer, Joined)
        return answer.session


def test_a_broker_joins_after_it_was_added() -> None:
    cluster = Cluster()
    assert cluster.do(AddBroker(NEW, "10.0.0.9:5681")) == Done()
    assert cluster.do(AddBroker(NEW, PEERS)) == Done(), "the address was wrong"
    assert cluster.do(AddBroker(NEW, PEERS)) == Done(0)
    assert cluster.state.brokers[NEW].addresses == Addresses(PEERS)

    assert cluster.join(NEW, 0) > 0
    assert cluster.do(AddBroker(NEW, PEERS)) == Done(0)
    assert cluster.state.brokers[NEW].addresses.peers == "mq-1:5681", "a broker knows best where it is"


def test_a_broker_that_has_not_joined_gets_replicas_only_where_the_others_are_too_few() -> None:
    cluster = Cluster()
    for number in range(1, 4):
        cluster.do(AddBroker(BrokerName(f"mq-{number}"), f"10.0.0.{number}:5681"))
    cluster.join(BrokerName("mq-1"), 0)
    cluster.join(BrokerName("mq-2"), 0)

    cluster.do(CreateVhost(SHOP))

    (shard,) = cluster.state.shards_of(SHOP)
    assert cluster.state.placement[shard] == ("mq-0", "mq-1", "mq-2")


def test_a_broker_is_removed_that_has_no_replicas() -> None:
    cluster = Cluster()
    cluster.do(AddBroker(NEW, PEERS))
    cluster.join(NEW, 0)
    with pytest.raises(PreconditionFailedError, match="has 1 replicas"):
        cluster.do(RemoveBroker(FIRST))

    cluster.do(RemoveBroker(NEW))

    assert list(cluster.state.brokers) == [FIRST]


@pytest.mark.parametrize(("broker", "peers"), [("", PEERS), ("MQ 1", PEERS), ("mq-1", "10.0.0.6"), ("mq-1", "a b:1")])
def test_a_broker_that_cannot_be_named_or_reached_is_not_added(broker: str, peers: str) -> None:
    with pytest.raises(InvalidArgumentError):
        Cluster().do(AddBroker(BrokerName(broker), peers))


def test_all_shards_of_a_virtual_host_are_on_the_same_brokers_and_move_together() -> None:
    cluster = Cluster()
    assert cluster.do(CreateVhost(SHOP, 3)) == Done()
    shards = cluster.state.shards_of(SHOP)
    assert [shard.split(".")[1] for shard in shards] == ["0", "1", "2"]
    assert [cluster.state.placement[shard] for shard in shards] == [(FIRST,)] * 3
    cluster.do(AddBroker(NEW, PEERS))
    cluster.join(NEW, 0)

    assert cluster.do(PlaceVhost(SHOP, (FIRST, NEW), (FIRST,))) == Done()

    assert [cluster.state.placement[shard] for shard in shards] == [(FIRST, NEW)] * 3
    assert cluster.do(PlaceVhost(SHOP, (FIRST, NEW), (FIRST, NEW))) == Done(0)
    with pytest.raises(PreconditionFailedError, match="placed by another call"):
        cluster.do(PlaceVhost(SHOP, (NEW,), (FIRST,)))
    with pytest.raises(PreconditionFailedError, match="has 4 replicas"):
        cluster.do(RemoveBroker(FIRST))
