"""Plans the import of a LavinMQ directory before anything is written.

The plan has the users with their permissions, and per vhost everything that its topology accepts. Refused parts are
left out and listed by name, never dropped silently. Messages are only counted here, where they are left out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from penstock.identity import Permission, Users
from penstock.identity.definitions_json import problem_of_user, read_user
from penstock.identity.permissions import whole_pattern
from penstock.importing.lavinmq import FoundBinding, FoundExchange, FoundQueue, FoundVhost, LavinDirectory, QueueFolder
from penstock.importing.lavinmq.messages import count_messages
from penstock.metadata import VhostTopology, check_shard_count, decide
from penstock.metadata.argument_rules import check_exchange_arguments, check_queue_arguments
from penstock.metadata.commands import Bind, Command, DeclareExchange, DeclareQueue, SetLimits
from penstock.metadata.effects import Entry
from penstock.model.arguments import NO_ARGUMENTS, Arguments, Value
from penstock.model.errors import RefusedError, Thing
from penstock.model.limits import Holder, read_limits
from penstock.model.names import (
    ConnectionId,
    ExchangeName,
    VhostName,
    exchange_name,
    queue_name,
    routing_key,
    vhost_name,
)
from penstock.model.records import (
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_DEDICATED,
    X_QUEUE_TYPE,
    Binding,
    DestinationKind,
    ExchangeKind,
    Queue,
    QueueKind,
)
from penstock.vhost.policies_json import read_policy

NO_CONNECTION: Final = ConnectionId(0)
THEIRS: Final = frozenset({"", "mqtt.default", "amq.lavinmq.log"})
"""Exchanges that every LavinMQ declares by itself."""
DELAYS: Final = ("amq.delayed-", "amq.delayed.")
"""Prefixes of the names of queues that hold an exchange's delayed messages, now and in earlier versions."""
Check: TypeAlias = Callable[[Thing, Arguments], None]


def kind_of_exchange(name: str) -> ExchangeKind:
    """Return the kind by which the arguments of an exchange of LavinMQ are checked. It has no partitioned streams."""
    kinds = {kind.value: kind for kind in ExchangeKind if kind is not ExchangeKind.SUPER_STREAM}
    return kinds.get(name, ExchangeKind.DIRECT)


@dataclass(slots=True)
class VhostPlan:
    """The plan of a vhost; `folders` are those of the imported queues, `delayed` those of delayed messages.

    `topology` has what is imported, by which delayed messages are routed.
    """

    name: VhostName
    topology: VhostTopology
    shard_count: int = 1
    entries: list[Entry] = field(default_factory=list)
    exchange_count: int = 0
    queue_count: int = 0
    binding_count: int = 0
    folders: list[tuple[Queue, QueueFolder]] = field(default_factory=list)
    delayed: list[QueueFolder] = field(default_factory=list)

    @property
    def all_folders(self) -> list[QueueFolder]:
        return [*(folder for _, folder in self.folders), *self.delayed]


@dataclass(slots=True)
class Plan:
    users: Users = field(default_factory=Users)
    vhosts: list[VhostPlan] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def make_plan(source: LavinDirectory, shard_count: int = 1) -> Plan:
    """Make the plan, with so many shards for each vhost.

    Raises StorageError for files that cannot be read, and for a number of shards that a vhost cannot have.
    """
    plan = Plan()
    check_shard_count(Thing("vhost", "import"), shard_count)
    for user in source.users():
        _plan_user(plan, user)
    for parameter in source.parameters():
        plan.left_out.append(f"parameter '{parameter.get('name', '')}' of {parameter.get('component', '')}")
    for found in source.vhosts():
        try:
            name = vhost_name(found.name)
        except RefusedError as refusal:
            plan.left_out.append(f"{refusal}, with everything in it")
            continue
        plan.vhosts.append(
            _VhostPlanner(found, VhostPlan(name, VhostTopology(name), shard_count), plan.left_out).plan()
        )
    return plan


def _plan_user(plan: Plan, item: dict[str, Any]) -> None:
    entry = {key: value for key, value in item.items() if key != "permissions"}
    problem = problem_of_user(entry)
    if problem:
        plan.left_out.append(problem)
        return
    user = read_user(entry)
    permissions: dict[str, Permission] = {}
    found = item.get("permissions")
    for vhost, patterns in found.items() if isinstance(found, dict) else ():
        try:
            permissions[vhost] = _permission(patterns)
        except (RefusedError, TypeError) as error:
            plan.left_out.append(f"permissions of user '{user.name}' in vhost '{vhost}': {error}")
    plan.users = plan.users.merge([replace(user, permissions=MappingProxyType(permissions))])


def _permission(patterns: Any) -> Permission:
    if not isinstance(patterns, dict):
        raise TypeError("they are not an object")
    sources = [patterns.get("config", patterns.get("configure")), patterns.get("write"), patterns.get("read")]
    if not all(isinstance(source, str) for source in sources):
        raise TypeError("a pattern is not a string")
    configure, write, read = (whole_pattern(str(source)) for source in sources)
    return Permission.compile(configure, write, read)


class _VhostPlanner:
    """Planner of one vhost: tries every declaration on an empty topology, in the order of dependence."""

    def __init__(self, found: FoundVhost, plan: VhostPlan, left_out: list[str]) -> None:
        self._found = found
        self._topology = plan.topology
        self._topology.shard_count = plan.shard_count
        self._plan = plan
        self._left_out = left_out

    def plan(self) -> VhostPlan:
        topology = self._found.topology()
        for exchange in topology.exchanges.values():
            if exchange.durable and exchange.name not in THEIRS:
                self._plan.exchange_count += self._plan_exchange(exchange)
        folders = self._found.folders()
        for queue in topology.queues.values():
            if queue.durable and not queue.exclusive:
                self._plan.queue_count += self._plan_queue(queue, folders.pop(queue.name, None))
        passing = {queue.name for queue in topology.queues.values() if not queue.durable or queue.exclusive}
        for folder in folders.values():
            if self._is_of_delays(folder.name):
                self._plan.delayed.append(folder)
            elif folder.name not in passing:
                self._leave_messages(folder, "no queue of that name is declared")
        for binding in topology.bindings.values():
            if binding.source and (binding.to_exchange or binding.destination not in passing):
                self._plan.binding_count += self._plan_binding(binding)
        self._plan_policies()
        self._plan_limits()
        self._leave_the_rest()
        return self._plan

    def _is_of_delays(self, name: str) -> bool:
        """Return whether a queue has the delayed messages of an exchange that is imported."""
        names = [name.removeprefix(prefix) for prefix in DELAYS if name.startswith(prefix)]
        return any(self._topology.exchange(ExchangeName(each)) is not None for each in names)

    def _plan_exchange(self, found: FoundExchange) -> int:
        thing = self._topology.thing("exchange", found.name)

        def command(arguments: Arguments) -> Command:
            name = exchange_name(found.name)
            return DeclareExchange(name, found.kind, True, found.auto_delete, found.internal, arguments)

        def check(thing: Thing, one: Arguments) -> None:
            check_exchange_arguments(thing, one, kind_of_exchange(found.kind))

        return self._declare(thing, self._taken(thing, found.arguments, check), command)

    def _plan_queue(self, found: FoundQueue, folder: QueueFolder | None) -> int:
        thing = self._topology.thing("queue", found.name)
        is_new = self._declare_queue(thing, found)
        if folder is None:
            return is_new
        if is_new:
            self._plan.folders.append((self._topology.queues[queue_name(found.name)], folder))
            self._leave_state(thing, folder)
        else:
            self._leave_messages(folder, "its queue is left out")
        return is_new

    def _declare_queue(self, thing: Thing, found: FoundQueue) -> int:
        if not found.name:
            self._left_out.append(f"{thing} has an empty name")  # a topology would take it as a request for a name
            return 0
        arguments = dict(found.arguments)
        if arguments.get(X_QUEUE_TYPE) == QueueKind.QUORUM and found.auto_delete:
            del arguments[X_QUEUE_TYPE]  # in LavinMQ a quorum queue is an ordinary one
        queue_type = arguments.get(X_QUEUE_TYPE)
        kind: Arguments = {X_QUEUE_TYPE: queue_type} if queue_type in tuple(QueueKind) else NO_ARGUMENTS

        def check(thing: Thing, one: Arguments) -> None:
            check_queue_arguments(thing, {**kind, **one})

        def command(arguments: Arguments) -> Command:
            name = queue_name(found.name)
            return DeclareQueue(
                name, NO_CONNECTION, auto_delete=found.auto_delete, arguments=arguments, may_be_reserved=True
            )

        return self._declare(thing, self._taken(thing, arguments, check), command)

    def _declare(self, thing: Thing, arguments: Arguments, command: Callable[[Arguments], Command]) -> int:
        """Return 1 when it is accepted and new.

        Arguments that are refused only together are left out together, so that messages and bindings keep their queue.
        """
        try:
            return self._decided(command(arguments))
        except RefusedError as refusal:
            rule = refusal.rule
        kind = {key: value for key, value in arguments.items() if key == X_QUEUE_TYPE}
        names = ", ".join(f"'{key}'" for key in arguments if key not in kind)
        try:
            count = self._decided(command(kind))
        except RefusedError as refusal:
            self._left_out.append(f"{refusal.thing} {refusal.rule}")
            return 0
        self._left_out.append(f"arguments {names} of {thing}: it {rule}")
        return count

    def _plan_binding(self, found: FoundBinding) -> int:
        kind = DestinationKind.EXCHANGE if found.to_exchange else DestinationKind.QUEUE
        make = exchange_name if found.to_exchange else queue_name
        try:
            binding = Binding(
                exchange_name(found.source),
                kind,
                make(found.destination),
                routing_key(found.routing_key),
                found.arguments,
            )
        except RefusedError as refusal:
            self._left_out.append(str(refusal))
            return 0
        return self._decide(Bind(binding, NO_CONNECTION))

    def _plan_policies(self) -> None:
        for item in self._found.policies():
            self._plan_policy(item, is_operator=False)
        for item in self._found.operator_policies():
            self._plan_policy(item, is_operator=True)

    def _plan_policy(self, item: dict[str, Any], *, is_operator: bool) -> None:
        """Plan a policy. One with an unknown key is left out whole: the remainder might mean the opposite."""
        try:
            command = read_policy(self._plan.name, item, is_operator=is_operator)
        except RefusedError as refusal:
            self._left_out.append(f"{'operator ' if is_operator else ''}{refusal.thing} {refusal.rule}")
            return
        self._decide(command)

    def _plan_limits(self) -> None:
        """Plan limits after the queues: there may be more queues than a limit allows."""
        try:
            limits = read_limits(Holder.VHOST, self._plan.name, self._found.limits())
        except RefusedError as refusal:
            self._left_out.append(f"{refusal.thing} {refusal.rule}")
            return
        self._decide(SetLimits(limits))

    def _taken(self, thing: Thing, arguments: Arguments, check: Check) -> dict[str, Value]:
        """Return the arguments that this broker supports. A queue that loses one is still imported."""
        taken: dict[str, Value] = {}
        for key, value in arguments.items():
            if key == X_DEDICATED:
                # Imported messages are in the vhost's log.
                self._left_out.append(f"{thing} has an argument '{key}' that imports do not support")
                continue
            needed = {X_DEAD_LETTER_EXCHANGE} & arguments.keys() if key == X_DEAD_LETTER_ROUTING_KEY else set()
            try:
                check(thing, {key: value, **{other: arguments[other] for other in needed}})
            except RefusedError as refusal:
                self._left_out.append(f"{refusal.thing} {refusal.rule}")
                continue
            taken[key] = value
        return taken

    def _decide(self, command: Command) -> int:
        """Return 1 when it is accepted and new."""
        try:
            return self._decided(command)
        except RefusedError as refusal:
            self._left_out.append(f"{refusal.thing} {refusal.rule}")
            return 0

    def _decided(self, command: Command) -> int:
        decision = decide(self._topology, command)
        self._plan.entries += decision.entries
        return len(decision.entries)

    def _leave_state(self, thing: Thing, folder: QueueFolder) -> None:
        if folder.has_consumer_offsets:
            self._left_out.append(f"consumer offsets of {thing}")
        if folder.is_paused:
            self._left_out.append(f"the pause of {thing}")

    def _leave_messages(self, folder: QueueFolder, why: str) -> None:
        count = count_messages(folder)
        if count:
            self._left_out.append(
                f"{count:,} message{'' if count == 1 else 's'} of {self._topology.thing('queue', folder.name)}: {why}"
            )

    def _leave_the_rest(self) -> None:
        place = f"in vhost '{self._found.name}'"
        self._left_out += (f"parameter '{name}' {place}" for name in _names(self._found.parameters()))
        if retained_count := self._found.retained_count():
            self._left_out.append(f"{retained_count:,} retained messages of MQTT {place}")


def _names(items: Iterable[dict[str, Any]]) -> list[str]:
    return [str(item.get("name", "")) for item in items]
