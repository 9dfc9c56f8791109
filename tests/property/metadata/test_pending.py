"""Batches decided on a pending copy, against the same commands decided on a topology of its own.

The answers are equal, a commit makes the topologies equal, and a dropped batch leaves no trace. A follower that is told
the replicated entries of each decision has the same topology, stores what the decision stores, and its engine is as one
that begins with the topology.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from penstock.metadata import (
    PendingTopology,
    VhostTopology,
    apply_entry,
    changes_of,
    decide,
    entries_of,
    is_stored,
    replicated,
)
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeclareStream,
    DeleteExchange,
    DeleteQueue,
    DeleteStream,
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
    Unbind,
)
from penstock.metadata.effects import (
    AddRoute,
    Change,
    Decision,
    DropExchange,
    DropQueue,
    Entry,
    PutExchange,
    PutQueue,
    RemoveRoute,
)
from penstock.metadata.policies import Policy
from penstock.model.arguments import freeze_arguments
from penstock.model.errors import RefusedError
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind

queues = st.sampled_from(["qa", "qb", "qc"]).map(QueueName)
exchanges = st.sampled_from(["xa", "xb", "amq.topic"]).map(ExchangeName)
connections = st.sampled_from([1, 2]).map(ConnectionId)
keys = st.sampled_from(["", "a.#"]).map(RoutingKey)
bindings = st.builds(Binding, exchanges, st.just(DestinationKind.QUEUE), queues, keys) | st.builds(
    Binding, exchanges, st.just(DestinationKind.EXCHANGE), exchanges, keys
)
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(DeclareQueue, queues, connections, st.booleans(), st.booleans(), st.booleans()),
    st.builds(DeclareExchange, exchanges, st.just("topic"), st.booleans(), st.booleans()),
    st.builds(DeleteQueue, queues, connections),
    st.builds(DeleteExchange, exchanges),
    st.builds(Bind, bindings, connections),
    st.builds(Unbind, bindings, connections),
    st.builds(ConnectionClosed, connections),
    st.builds(DeclareStream, st.sampled_from(["s", "t"]), st.just(2)),
    st.builds(DeleteStream, st.sampled_from(["s", "t"])),
    st.builds(
        SetPolicy, st.builds(Policy, st.just("p"), st.sampled_from(["^q", "^x"]), st.just({"durability": "disk"}))
    ),
    st.builds(SetLimits, st.builds(Limits, queues_max=st.sampled_from([2, 5]))),
    st.builds(SetDefaultQueueType, st.sampled_from(["classic", "quorum", "stream"])),
)


def decided(state: VhostTopology, command: Command) -> object:
    try:
        return decide(state, command)
    except RefusedError as refusal:
        return type(refusal), str(refusal)


def contents(state: VhostTopology) -> dict[str, Any]:
    """All that readers can see, in its order."""
    return {
        "entries": list(entries_of(state)),
        "changes": list(changes_of(state)),
        "exchanges": list(state.exchanges.items()),
        "queues": list(state.queues.items()),
        "streams": list(state.streams),
        "names": (list(state.exchange_names), list(state.queue_names)),
        "bindings": (state.binding_count, list(state.bindings())),
        "owned": {number: state.queues_of(ConnectionId(number)) for number in (1, 2)},
        "limits": state.limits,
        "default queue type": state.default_queue_type,
    }


class Engine:
    """The exchanges, queues and routes of an engine after changes."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self.exchanges: dict[str, object] = {}
        self.queues: dict[int, object] = {}
        self.routes: dict[object, object] = {}
        self.take(changes)

    def take(self, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case PutExchange(exchange):
                    self.exchanges[exchange.name] = (exchange.routing_kind, freeze_arguments(exchange.arguments))
                case DropExchange(name):
                    del self.exchanges[name]
                case PutQueue(queue):
                    arguments = freeze_arguments(queue.arguments)
                    self.queues[queue.id] = (queue.name, arguments, queue.least_durability)
                case DropQueue(number):
                    del self.queues[number]
                case AddRoute(route):
                    assert route.identity not in self.routes
                    self.routes[route.identity] = route
                case RemoveRoute(route):
                    del self.routes[route.identity]
                case _:
                    raise AssertionError(change)


class PendingAgainstPlain(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.committed = VhostTopology(VhostName("/"))
        self.follower = VhostTopology(VhostName("/"))
        self.engine = Engine(changes_of(self.follower))
        self.begin()

    def begin(self) -> None:
        self.before = contents(self.committed)
        shared = (self.committed.policies, self.committed.operator_policies)  # compiled patterns cannot be copied
        self.plain = deepcopy(self.committed, {id(policies): policies for policies in shared})
        self.pending = PendingTopology(self.committed)
        self.count = 0
        self.told: list[tuple[list[Entry], tuple[Entry, ...]]] = []

    @rule(command=commands)
    def step(self, command: Command) -> None:
        done_count = len(self.pending.steps)
        decision = decided(self.pending, command)
        assert decision == decided(self.plain, command)
        if isinstance(decision, Decision):
            self.told.append((decision.entries, replicated(decision, self.pending.steps[done_count:])))
        assert len(self.pending.queues) == len(self.plain.queues)
        assert list(self.pending.queues) == list(self.plain.queues)
        assert list(self.pending.bindings()) == list(self.plain.bindings())
        assert contents(self.committed) == self.before
        self.count += 1

    @precondition(lambda self: self.count)
    @rule()
    def commit(self) -> None:
        self.pending.commit()
        self.committed.check_invariants()
        assert contents(self.committed) == contents(self.plain)
        assert self.committed.next_queue_id == self.plain.next_queue_id
        for entries, told in self.told:
            self.follow(entries, told)
        assert contents(self.follower) == contents(self.plain)
        self.follower.check_invariants()
        self.begin()

    def follow(self, entries: list[Entry], told: tuple[Entry, ...]) -> None:
        stored: list[Entry] = []
        for entry in told:
            if is_stored(self.follower, entry):
                stored.append(entry)
            changes: list[Change] = []
            assert apply_entry(self.follower, entry, changes) is None
            self.engine.take(changes)
        assert stored == entries
        assert vars(self.engine) == vars(Engine(changes_of(self.follower)))

    @precondition(lambda self: self.count)
    @rule(keeps_ids=st.booleans())
    def drop(self, keeps_ids: bool) -> None:
        next_queue_id = self.committed.next_queue_id
        if keeps_ids:
            self.pending.keep_ids()
            next_queue_id = self.plain.next_queue_id
        self.committed.check_invariants()
        assert contents(self.committed) == self.before
        assert self.committed.next_queue_id == next_queue_id
        self.begin()


TestPendingAgainstPlain = PendingAgainstPlain.TestCase
