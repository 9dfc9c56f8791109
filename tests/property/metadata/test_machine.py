"""The machine of a vhost against a naive model: plain dictionaries and a set of bindings.

The model recomputes every cascade from everything. After each step an engine that got all changes must route as the
topology does, and a restart from the entries must restore the durable part.
"""

from dataclasses import dataclass

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from penstock.metadata import changes_of, entries_of, restore
from penstock.metadata.effects import Decision
from penstock.model.arguments import Arguments, freeze_arguments
from penstock.model.errors import LockedError, NotFoundError, PreconditionFailedError, RefusedError
from penstock.model.names import ExchangeName, RoutingKey
from penstock.model.records import Binding
from penstock.routing import route
from penstock.vhost.apply import apply_changes
from support.machine import Machine
from support.vhost_fakes import FakeShard

QUEUES = ("qa", "qb", "qc")
EXCHANGES = ("xa", "xb", "xc")
SOURCES = (*EXCHANGES, "amq.topic", "amq.headers")
KEYS = ("", "a", "a.b", "*", "#", "a.#")
SENT_KEYS = ("", "a", "a.b", "qa")
ARGUMENTS: tuple[Arguments, ...] = ({}, {"n": 1}, {"n": True}, {"x-match": "any", "n": 1, "m": None})
SENT_HEADERS: tuple[Arguments, ...] = ({}, {"n": 1}, {"m": "x"})
KINDS = ("direct", "fanout", "topic", "headers")
CONNECTIONS = (1, 2)

names_of_queues, names_of_exchanges = st.sampled_from(QUEUES), st.sampled_from(EXCHANGES)
connections, flags = st.sampled_from(CONNECTIONS), st.booleans()


@dataclass(frozen=True)
class ModelQueue:
    durable: bool
    auto_delete: bool
    owner: int | None

    @property
    def is_kept(self) -> bool:
        return self.durable and self.owner is None


@dataclass(frozen=True)
class ModelExchange:
    kind: str
    durable: bool
    auto_delete: bool
    alternate: str | None


Bound = tuple[str, str, str, str]
"""Source, destination (names of queues and exchanges differ here), key, arguments as text."""


class MachineAgainstModel(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.machine = Machine()
        self.shard = FakeShard()
        self.queues: dict[str, ModelQueue] = {}
        self.exchanges: dict[str, ModelExchange] = {}
        self.bindings: set[Bound] = set()

    @initialize()
    def start(self) -> None:
        apply_changes(self.shard, changes_of(self.machine.state))  # type: ignore[arg-type]

    # ------------------------------------------------------------ rules

    @rule(name=names_of_queues, connection=connections, durable=flags, exclusive=flags, auto_delete=flags)
    def declare_queue(self, name: str, connection: int, durable: bool, exclusive: bool, auto_delete: bool) -> None:
        wanted = ModelQueue(durable, auto_delete, connection if exclusive else None)
        there = self.queues.get(name)
        expected: type[RefusedError] | None = None
        if there is not None and there.owner not in (None, connection):
            expected = LockedError
        elif there is not None and there != wanted:
            expected = PreconditionFailedError
        self.perform(
            expected,
            lambda: self.machine.queue(name, connection, durable=durable, exclusive=exclusive, auto_delete=auto_delete),
        )
        if expected is None:
            self.queues[name] = wanted

    @rule(
        name=names_of_exchanges,
        kind=st.sampled_from(KINDS),
        durable=flags,
        auto_delete=flags,
        alternate=st.sampled_from((None, *EXCHANGES)),
    )
    def declare_exchange(self, name: str, kind: str, durable: bool, auto_delete: bool, alternate: str | None) -> None:
        wanted = ModelExchange(kind, durable, auto_delete, alternate)
        expected = PreconditionFailedError if self.exchanges.get(name, wanted) != wanted else None
        arguments: Arguments = {} if alternate is None else {"alternate-exchange": alternate}
        self.perform(
            expected,
            lambda: self.machine.exchange(name, kind, arguments, durable=durable, auto_delete=auto_delete),
        )
        if expected is None:
            self.exchanges[name] = wanted

    @rule(
        source=st.sampled_from(SOURCES),
        destination=st.sampled_from((*QUEUES, *EXCHANGES)),
        key=st.sampled_from(KEYS),
        arguments=st.sampled_from(ARGUMENTS),
        connection=connections,
        is_bind=flags,
    )
    def bind_or_unbind(
        self, source: str, destination: str, key: str, arguments: Arguments, connection: int, is_bind: bool
    ) -> None:
        bound = (source, destination, key, repr(freeze_arguments(arguments)))
        expected = self.end_refusal(source, destination, connection)
        if expected is None and not is_bind and bound not in self.bindings:
            expected = NotFoundError
        act = self.machine.bind if is_bind else self.machine.unbind
        end = f"exchange:{destination}" if destination in EXCHANGES else destination
        self.perform(expected, lambda: act(source, end, key, arguments, connection))
        if expected is None and is_bind:
            self.bindings.add(bound)
        elif expected is None:
            self.bindings.remove(bound)
            self.abandon({source})

    @rule(name=names_of_queues, connection=connections)
    def delete_queue(self, name: str, connection: int) -> None:
        there = self.queues.get(name)
        expected: type[RefusedError] | None = None
        if there is None:
            expected = NotFoundError
        elif there.owner not in (None, connection):
            expected = LockedError
        self.perform(expected, lambda: self.machine.delete_queue(name, connection))
        if expected is None:
            self.lose_queue(name)

    @rule(name=names_of_exchanges, if_unused=flags)
    def delete_exchange(self, name: str, if_unused: bool) -> None:
        expected: type[RefusedError] | None = None
        if name not in self.exchanges:
            expected = NotFoundError
        elif if_unused and any(source == name for source, *_ in self.bindings):
            expected = PreconditionFailedError
        self.perform(expected, lambda: self.machine.delete_exchange(name, if_unused=if_unused))
        if expected is None:
            self.lose_exchange(name)

    @rule(connection=connections)
    def close_connection(self, connection: int) -> None:
        self.perform(None, lambda: self.machine.closed(connection))
        for name in [name for name, queue in self.queues.items() if queue.owner == connection]:
            self.lose_queue(name)

    @rule(name=names_of_queues)
    def queue_unused(self, name: str) -> None:
        self.perform(None, lambda: self.machine.unused(name))
        if name in self.queues and self.queues[name].auto_delete:
            self.lose_queue(name)

    # ------------------------------------------------------------ the model's consequences

    def perform(self, expected: type[RefusedError] | None, act: object) -> None:
        assert callable(act)
        refused: type[RefusedError] | None = None
        try:
            decision: Decision = act()
        except RefusedError as refusal:
            refused = type(refusal)
        else:
            apply_changes(self.shard, decision.changes)  # type: ignore[arg-type]
        assert refused is expected

    def end_refusal(self, source: str, destination: str, connection: int) -> type[RefusedError] | None:
        if source in EXCHANGES and source not in self.exchanges:
            return NotFoundError
        if destination not in self.queues and destination not in self.exchanges:
            return NotFoundError
        owner = self.queues[destination].owner if destination in self.queues else None
        return LockedError if owner not in (None, connection) else None

    def lose_queue(self, name: str) -> None:
        del self.queues[name]
        self.lose_bindings_of(name)

    def lose_exchange(self, name: str) -> None:
        del self.exchanges[name]
        self.lose_bindings_of(name)

    def lose_bindings_of(self, name: str) -> None:
        lost = {bound for bound in self.bindings if name in bound[:2]}
        self.bindings -= lost
        self.abandon({source for source, *_ in lost})

    def abandon(self, sources: set[str]) -> None:
        for source in sources:
            exchange = self.exchanges.get(source)
            if exchange and exchange.auto_delete and not any(bound[0] == source for bound in self.bindings):
                self.lose_exchange(source)

    # ------------------------------------------------------------ what always holds

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        state = self.machine.state
        assert set(state.queues) == set(self.queues)
        assert {name for name in state.exchanges if name in EXCHANGES} == set(self.exchanges)
        assert {bound_of(binding) for binding in state.bindings()} == self.bindings
        assert set(self.shard.queues.values()) == set(self.queues)

    @invariant()
    def the_engine_routes_like_the_router(self) -> None:
        for exchange in ("", *SOURCES):
            for key in SENT_KEYS:
                for headers in SENT_HEADERS:
                    expected = route(self.machine.state, ExchangeName(exchange), RoutingKey(key), headers)
                    assert self.shard.route(exchange, key, headers) == expected

    @invariant()
    def a_restart_finds_what_was_durable(self) -> None:
        again = restore(self.machine.state.vhost, self.machine.entries, 0)
        again.check_invariants()
        kept_queues = {name for name, queue in self.queues.items() if queue.is_kept}
        kept_exchanges = {name for name, exchange in self.exchanges.items() if exchange.durable}
        kept = kept_queues | kept_exchanges | {"amq.topic", "amq.headers"}
        assert set(again.queues) == kept_queues
        assert {name for name in again.exchanges if name in EXCHANGES} == kept_exchanges
        assert {bound_of(binding) for binding in again.bindings()} == {
            bound for bound in self.bindings if {*bound[:2]} <= kept
        }
        assert again.queues == {name: queue for name, queue in self.machine.state.queues.items() if name in kept_queues}
        assert set(map(repr, entries_of(again))) == set(map(repr, entries_of(self.machine.state)))


def bound_of(binding: Binding) -> Bound:
    arguments = repr(freeze_arguments(binding.arguments))
    return (str(binding.source), str(binding.destination), str(binding.routing_key), arguments)


TestMachine = MachineAgainstModel.TestCase
