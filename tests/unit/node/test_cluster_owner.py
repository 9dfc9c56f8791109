"""The owner of a virtual host in a cluster: who serves its messages, and commands that depend on them."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, cast

import pytest

from penstock.cluster.meta.commands import Addresses, InVhost, MetaAnswer, MetaCommand
from penstock.cluster.meta.log import UnknownOutcomeError
from penstock.cluster.record import BrokerName
from penstock.metadata import PendingTopology, VhostTopology, decide
from penstock.metadata.commands import Command, DeclareQueue, DeleteQueue, PurgeQueue, QueueUnused
from penstock.metadata.effects import Decision
from penstock.model.errors import (
    LockedError,
    NotFoundError,
    NotLedError,
    PreconditionFailedError,
    StoppedError,
    Thing,
)
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.model.records import X_DEDICATED
from penstock.native import QueueCounts, Replica, ReplicaBackup, Shard
from penstock.node.in_cluster import owner
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.owner import ClusterOwner
from penstock.node.in_cluster.term import Term
from support.vhost_fakes import FakeShard

ME, OTHER, LATER = BrokerName("mq-0"), BrokerName("mq-1"), BrokerName("mq-2")
NAME, ORDERS, SOMEBODY = VhostName("shop"), QueueName("orders"), ConnectionId(7)


class FakeMetadata:
    """Decides commands at once on the topology, and tells the term what follows."""

    me = ME

    def __init__(self, topology: VhostTopology) -> None:
        self.topology = topology
        self.term: Term | None = None
        self.caught_up_count = 0
        self.served: list[BrokerName] = []
        self.leads = asyncio.Event()
        """Whether a broker leads the metadata."""
        self.leads.set()
        self.move: Callable[[], None] = lambda: None
        """Called while another broker is asked for the first time."""
        self.paused: BrokerName | None = None
        """A broker that sends no answer."""
        self.asked: list[tuple[BrokerName, VhostName, list[QueueName]]] = []
        """The questions for counts."""
        self.counts: dict[QueueName, QueueCounts] = {}
        self.before_counts: Callable[[], None] = lambda: None
        self.numbers: dict[ConnectionId, ConnectionId] = {}
        """Those of relayed connections in the cluster."""

    async def counts_of(
        self, broker: BrokerName, vhost: VhostName, names: Sequence[QueueName]
    ) -> Mapping[QueueName, QueueCounts]:
        self.asked.append((broker, vhost, list(names)))
        await asyncio.sleep(0)
        self.before_counts()
        return self.counts

    async def submit(self, command: MetaCommand) -> MetaAnswer:
        assert isinstance(command, InVhost)
        await self.leads.wait()
        pending = PendingTopology(self.topology)
        decision: Decision = decide(pending, command.command)
        pending.commit()
        if self.term is not None:
            self.term.put(decision.changes)
        return decision.answer

    async def served_by(self, broker: BrokerName, vhost: VhostName) -> None:
        assert vhost == NAME
        assert QueueName("orders") in self.topology.queues
        self.served.append(broker)
        self.move()
        if broker == self.paused:
            await asyncio.Event().wait()

    async def catch_up(self) -> None:
        self.caught_up_count += 1

    def number_of(self, connection: ConnectionId) -> ConnectionId:
        return self.numbers.get(connection, connection)

    def addresses_of(self, broker: BrokerName) -> Addresses:
        return Addresses("10.0.0.6:5681", "10.0.0.6:5680", "10.0.0.6:5672") if broker == OTHER else Addresses()


class FakePlace:
    fault: str | None = None

    def __init__(self, leader: BrokerName | None = None) -> None:
        self.leads = leader
        self.replica = cast(Replica, object())

    async def readable_replica(self, shard: int) -> Replica | None:
        return self.replica if shard == 0 else None

    def leader(self) -> BrokerName | None:
        return self.leads

    async def find_leader(self) -> BrokerName | None:
        return self.leads

    async def begin_backup(self) -> ReplicaBackup:
        raise AssertionError("nothing is backed up")


class World:
    """An owner, with a term of its own from `lead` on."""

    def __init__(self, leader: BrokerName | None = None) -> None:
        self.topology = VhostTopology(NAME)
        self.metadata = FakeMetadata(self.topology)
        self.place = FakePlace(leader)
        self.owner = ClusterOwner(self.topology, cast(Metadata, self.metadata), self.place)
        self.shard = FakeShard()
        self.applying: asyncio.Task[None] | None = None

    async def lead(self, *, delivers: bool = True) -> None:
        term = self.metadata.term = Term(NAME, cast(Shard, self.shard), (3,))
        await term.fill(self.topology)
        self.applying = asyncio.ensure_future(term.run())
        self.place.leads = ME
        self.owner.begin_term(term, delivers=delivers)

    async def declare(self, **arguments: Any) -> None:
        await self.owner.submit(DeclareQueue(ORDERS, SOMEBODY, arguments=arguments))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_messages_are_refused_with_the_leader_where_another_broker_leads() -> None:
    async def scenario() -> None:
        world = World(OTHER)

        with pytest.raises(NotLedError, match=r"led by broker 'mq-1'; connect to 10\.0\.0\.6:5680 \(gRPC\) or 10"):
            await world.owner.read_serving(lambda: None)
        with pytest.raises(NotLedError):
            _ = world.owner.shard

    run(scenario())


def test_a_command_is_possible_where_another_broker_leads() -> None:
    async def scenario() -> None:
        world = World(OTHER)

        await world.declare()

        assert await world.owner.read(lambda: list(world.topology.queues)) == [ORDERS]
        assert world.owner.counts([ORDERS]) == [QueueCounts()]

    run(scenario())


def test_the_broker_that_leads_is_asked_for_the_counts_of_the_queues_that_are_looked_at() -> None:
    async def scenario() -> None:
        world = World(OTHER)
        await world.declare()
        owner, counts = world.owner, QueueCounts(ready_count=7)

        assert await owner.read_engine(lambda: owner.counts([ORDERS])) == [QueueCounts()], "without an answer"
        world.metadata.counts = {ORDERS: counts}
        assert await owner.read_engine(lambda: owner.counts([ORDERS, ORDERS])) == [counts, counts]
        assert await owner.read_engine(lambda: 3) == 3

        assert world.metadata.asked == [(OTHER, NAME, [ORDERS]), (OTHER, NAME, [ORDERS, ORDERS])]
        assert owner.counts([ORDERS]) == [QueueCounts()], "the counts of a look that is over"
        assert owner.own_counts([ORDERS]) is None

    run(scenario())


def test_no_broker_is_asked_for_counts_where_none_is_known_to_lead_or_a_look_is_refused() -> None:
    def refuse() -> None:
        raise NotFoundError(Thing("queue", "gone"))

    async def scenario() -> None:
        world = World()
        await world.declare()
        owner = world.owner

        assert await owner.read_engine(lambda: owner.counts([ORDERS])) == [QueueCounts()]
        world.place.leads = OTHER
        with pytest.raises(NotFoundError):
            await owner.read_engine(refuse)

        assert world.metadata.asked == []

    run(scenario())


def test_a_queue_that_is_deleted_while_the_leader_is_asked_is_not_found() -> None:
    async def scenario() -> None:
        world = World(OTHER)
        await world.declare()
        owner = world.owner

        def look() -> list[QueueCounts]:
            if ORDERS not in world.topology.queues:
                raise NotFoundError(Thing("queue", ORDERS))
            return owner.counts([ORDERS])

        world.metadata.before_counts = world.topology.queues.clear
        with pytest.raises(NotFoundError):
            await owner.read_engine(look)

    run(scenario())


def test_a_command_is_answered_when_the_broker_that_leads_by_then_has_it() -> None:
    async def scenario() -> None:
        world = World(OTHER)

        def move() -> None:
            world.place.leads = LATER

        world.metadata.move = move

        await world.declare()

        assert world.metadata.served == [OTHER, LATER]

    run(scenario())


def test_a_command_does_not_wait_for_a_broker_that_stands_still_once_another_one_leads() -> None:
    """It waited for ten seconds, and the queue was there after three."""

    async def scenario() -> None:
        world = World(OTHER)
        world.metadata.paused = OTHER
        declaring = asyncio.ensure_future(world.declare())
        await asyncio.sleep(0.2)
        assert not declaring.done()

        world.place.leads = LATER

        await asyncio.wait_for(declaring, 60)
        assert world.metadata.served == [OTHER, LATER]

    run(scenario())


def test_the_leader_asks_no_other_broker_whether_it_has_a_command() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()

        await world.declare()

        assert world.metadata.served == []

    run(scenario())


def test_a_client_waits_for_a_leader_that_is_not_known_yet() -> None:
    async def scenario() -> None:
        world = World()
        waiting = asyncio.ensure_future(world.owner.read_serving(lambda: "served"))
        await asyncio.sleep(0)

        await world.lead()

        assert await waiting == "served"

    run(scenario())


def test_a_client_of_another_broker_goes_to_the_leader_once_one_is_known() -> None:
    async def scenario() -> None:
        world = World()
        finding = asyncio.ensure_future(world.owner.other_leader(""))
        await asyncio.sleep(0.01)
        assert not finding.done()
        world.place.leads = OTHER

        assert await finding == OTHER
        assert await world.owner.other_leader("") == OTHER

        finding = asyncio.ensure_future(world.owner.other_leader(OTHER))
        await asyncio.sleep(0.01)
        assert not finding.done(), "it cannot be reached, and another one may lead soon"
        world.place.leads = LATER

        assert await finding == LATER

    run(scenario())


def test_a_client_stays_at_a_broker_that_leads_or_is_about_to() -> None:
    async def scenario() -> None:
        world = World(ME)
        finding = asyncio.ensure_future(world.owner.other_leader(""))
        await asyncio.sleep(0.01)
        assert not finding.done()

        await world.lead()

        assert await finding is None
        assert await world.owner.other_leader(OTHER) is None

    run(scenario())


def test_a_relayed_client_goes_on_until_another_broker_is_known_to_lead() -> None:
    async def scenario() -> None:
        world = World(OTHER)
        await world.owner.check_leader(OTHER)
        world.place.leads = None
        await world.owner.check_leader(OTHER)

        world.place.leads = LATER
        with pytest.raises(NotLedError, match="mq-2"):
            await world.owner.check_leader(OTHER)
        await world.lead()
        with pytest.raises(NotLedError):
            await world.owner.check_leader(OTHER)

    run(scenario())


def test_a_leader_that_cannot_be_reached_is_named_again_when_no_other_one_leads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, "UNREACHABLE_S", 0.01)

    async def scenario() -> None:
        assert await World(OTHER).owner.other_leader(OTHER) == OTHER
        monkeypatch.setattr(owner, "LEADER_S", 0.01)
        assert await World().owner.other_leader("") is None

    run(scenario())


def test_a_new_leader_serves_publishers_before_it_may_deliver() -> None:
    """They waited, too, for as long as the leader before could still deliver."""

    async def scenario() -> None:
        world = World()
        await world.lead(delivers=False)

        assert await world.owner.read_serving(lambda: "published") == "published"
        getting = asyncio.ensure_future(world.owner.read_delivering(lambda: "got"))
        await asyncio.sleep(0.01)
        assert not getting.done(), "a queue with messages would seem empty"
        world.owner.set_delivers(delivers=True)

        assert await getting == "got"

    run(scenario())


def test_the_engine_of_the_leader_has_what_was_declared_before_and_in_its_term() -> None:
    async def scenario() -> None:
        world = World()
        await world.declare()
        await world.lead()
        assert list(world.shard.queues.values()) == [ORDERS]

        await world.owner.submit(DeclareQueue(QueueName("more"), SOMEBODY))

        assert list(world.shard.queues.values()) == [ORDERS, "more"]
        assert not world.owner.is_applying

    run(scenario())


def test_a_queue_with_a_log_of_its_own_has_none_in_a_cluster() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()

        await world.declare(**{X_DEDICATED: True})

        assert list(world.shard.queues.values()) == [ORDERS]
        assert not world.shard.dedicated

    run(scenario())


def test_a_queue_that_must_be_empty_is_deleted_by_the_count_of_the_leader() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()
        await world.declare()
        world.shard.counts[ORDERS] = QueueCounts(ready_count=2)

        with pytest.raises(PreconditionFailedError):
            await world.owner.submit(DeleteQueue(ORDERS, SOMEBODY, if_empty=True))
        assert not world.shard.shut
        assert (await world.owner.submit(DeleteQueue(ORDERS, SOMEBODY))).dropped_count == 2

        assert not world.shard.queues

    run(scenario())


@pytest.mark.parametrize("condition", ["if_empty", "if_unused"])
def test_the_leader_deletes_an_exclusive_queue_for_its_relayed_owner_alone(condition: str) -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()
        world.metadata.numbers = {ConnectionId(1): SOMEBODY, SOMEBODY: ConnectionId(99)}
        await world.owner.submit(DeclareQueue(ORDERS, SOMEBODY, durable=False, exclusive=True))
        condition_met: dict[str, Any] = {condition: True}

        with pytest.raises(LockedError):
            await world.owner.submit(DeleteQueue(ORDERS, SOMEBODY, **condition_met))
        assert not world.shard.shut
        await world.owner.submit(DeleteQueue(ORDERS, ConnectionId(1), **condition_met))

        assert not world.topology.queues

    run(scenario())


def test_what_depends_on_messages_is_not_asked_for_after_the_term() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()
        await world.declare()
        world.metadata.leads.clear()
        unused = QueueUnused(ORDERS, world.topology.queues[ORDERS].id)
        commands: list[Command] = [
            DeleteQueue(ORDERS, SOMEBODY, if_unused=True),
            DeleteQueue(ORDERS, SOMEBODY, if_empty=True),
            unused,
        ]
        asking = [asyncio.ensure_future(world.owner.submit(command)) for command in commands]
        await asyncio.sleep(0)

        world.owner.end_term()
        world.owner.end_term()

        outcomes = await asyncio.gather(*asking, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [UnknownOutcomeError] * 3
        assert list(world.topology.queues) == [ORDERS]

    run(scenario())


def test_what_depends_on_messages_is_refused_where_another_broker_leads() -> None:
    async def scenario() -> None:
        world = World(OTHER)
        await world.declare()

        for command in (PurgeQueue(ORDERS, SOMEBODY), DeleteQueue(ORDERS, SOMEBODY, if_empty=True)):
            with pytest.raises(NotLedError):
                await world.owner.submit(command)
        assert list(world.topology.queues) == [ORDERS]

    run(scenario())


def test_the_leader_purges_a_queue() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()
        await world.declare()
        world.shard.counts[ORDERS] = QueueCounts(ready_count=3)

        assert (await world.owner.submit(PurgeQueue(ORDERS, SOMEBODY))).dropped_count == 3

    run(scenario())


def test_streams_are_read_from_a_replica_where_this_broker_does_not_lead() -> None:
    async def scenario() -> None:
        world = World(OTHER)
        assert await world.owner.find_replica(0) is world.place.replica
        assert await world.owner.find_replica(1) is None, "there is no such replica"
        world.place.leads = None
        assert await world.owner.find_replica(0) is world.place.replica, "none is known to lead"

        world.place.leads = ME
        assert await world.owner.find_replica(0) is None, "it is about to lead"
        await world.lead()
        assert await world.owner.find_replica(0) is None
        await world.owner.close("it was deleted")

        with pytest.raises(StoppedError):
            await world.owner.find_replica(0)

    run(scenario())


def test_nothing_is_taken_after_the_end() -> None:
    async def scenario() -> None:
        world = World()
        await world.lead()

        await world.owner.close("it was deleted")

        with pytest.raises(StoppedError, match="it was deleted"):
            await world.declare()
        with pytest.raises(StoppedError):
            await world.owner.read_serving(lambda: None)

    run(scenario())
