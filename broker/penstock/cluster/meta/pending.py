"""A copy of the committed state that the leader decides requests on, each with the changes of those before it.

The copy is dropped then: the leader applies committed records like every other broker.
"""

from collections.abc import Callable, MutableMapping
from functools import partial

from penstock.cluster.meta.changes import MetaChange, Record, VhostChanged, VhostCreated
from penstock.cluster.meta.commands import MetaAnswer, Request, SessionEndedError
from penstock.cluster.meta.placement import Brokers
from penstock.cluster.meta.state import MetaState, Owned, note_volatile
from penstock.metadata import PendingTopology, replicated
from penstock.metadata.effects import Decision, Done
from penstock.metadata.overlay import Overlay
from penstock.metadata.removal import remove_exchange, remove_queue
from penstock.model.errors import NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import ExchangeName, QueueName, VhostName


class PendingState:
    """The committed state with the changes of requests that are being decided.

    Invariant: the committed state does not change while this copy is in use.
    """

    def __init__(self, committed: MetaState, vhost_number_min: int = 0) -> None:
        """`vhost_number_min` is the first number of new virtual hosts, unless higher ones are in use."""
        self._committed = committed
        self._vhosts: dict[VhostName, PendingTopology | None] = {}
        self._answers: dict[tuple[int, int], MetaAnswer] = {}
        self.users = committed.users
        self.user_limits = dict(committed.user_limits)
        self.brokers = dict(committed.brokers)
        self.next_session = committed.next_session
        self.next_vhost = max(committed.next_vhost, vhost_number_min)
        self.numbers = dict(committed.numbers)
        self.replica_count = committed.replica_count
        self.placement = dict(committed.placement)
        self.volatile: MutableMapping[Owned, int] = Overlay(committed.volatile)

    def vhost(self, name: VhostName) -> PendingTopology:
        """Return the pending copy of a topology. Raises NotFoundError."""
        found = self._vhosts.get(name)
        if found is None and name not in self._vhosts and name in self._committed.vhosts:
            found = self._vhosts[name] = PendingTopology(self._committed.vhosts[name])
        if found is None:
            raise NotFoundError(Thing("vhost", name), "create it first or check the name")
        return found

    def has_vhost(self, name: VhostName) -> bool:
        return self._vhosts[name] is not None if name in self._vhosts else name in self._committed.vhosts

    def known(self, request: Request) -> MetaAnswer | None:
        """Return the answer of a request that was decided before. Raises for a session that has ended."""
        session = self._committed.sessions.get(request.session)
        if session is None or request.session not in {broker.session for broker in self.brokers.values()}:
            raise SessionEndedError(request.session)
        if request.number < session.answered_below:
            rule, way_out = "was answered before", "send each request with a new number"
            raise PreconditionFailedError(Thing("request", str(request.number)), rule, way_out)
        pending = self._answers.get((request.session, request.number))
        return pending if pending is not None else session.answers.get(request.number)

    def change_vhost(
        self, name: VhostName, session: int, rule: Callable[[PendingTopology], Decision]
    ) -> tuple[Decision, list[MetaChange]]:
        """Decide on a topology, and return the decision with its changes."""
        topology = self.vhost(name)
        done_count = len(topology.steps)
        decision = rule(topology)
        entries = replicated(decision, topology.steps[done_count:])
        for entry in entries:
            note_volatile(self.volatile, name, session, entry)
        return decision, [VhostChanged(name, session, entries)] if entries else []

    def end_session(self, session: int) -> list[MetaChange]:
        """Delete the things that end with a session, by the rules for their removal."""
        changes: list[MetaChange] = []
        for vhost in dict.fromkeys(owned[0] for owned, owner in self.volatile.items() if owner == session):
            ending = [owned for owned, owner in self.volatile.items() if owner == session and owned[0] == vhost]
            changes += self.change_vhost(vhost, session, partial(_remove_all, ending))[1]
        return changes

    def note_answer(self, record: Record) -> None:
        """Recognize repetitions of a request that was decided on this copy."""
        self._answers[record.session, record.number] = record.answer

    def note_deleted_vhost(self, name: VhostName) -> None:
        self._vhosts[name] = None
        del self.numbers[name]
        self.users = self.users.without_vhost(name)
        for owned in [owned for owned in self.volatile if owned[0] == name]:
            del self.volatile[owned]

    def create_vhost(self, name: VhostName, shard_count: int) -> VhostCreated:
        created, self.next_vhost = VhostCreated(name, shard_count, self.next_vhost), self.next_vhost + 1
        fresh = MetaState()
        fresh.change(created)
        self._vhosts[name] = PendingTopology(fresh.vhosts[name])
        self.numbers[name] = created.number
        return created

    def usable(self) -> Brokers:
        """Return the brokers that may get replicas; brokers that have not joined yet count like drained ones."""
        drained = frozenset(broker.broker for broker in self.brokers.values() if broker.is_draining or not broker.boot)
        return Brokers(frozenset(self.brokers) - drained, self.replica_count, drained)


def _remove_all(ending: list[Owned], topology: PendingTopology) -> Decision:
    decision = Decision(Done(len(ending)))
    for _, kind, name in ending:  # the removal of one may have removed another
        if kind == "queue" and name in topology.queues:
            remove_queue(topology, QueueName(name), decision)
        elif kind == "exchange" and name in topology.exchanges:
            remove_exchange(topology, ExchangeName(name), decision)
    return decision
