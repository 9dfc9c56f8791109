"""Lists of the objects in brokers, one per kind and virtual host, shared by all reconciles for a moment.

A listing is as old as `age_max` allows: a second, or ten times as long as it took, so that listing takes a tenth of the
time at most. Our own writes are noted in it. Whatever may have changed with a write beside it is listed again. Users
come with the broker's definitions, in one answer: a broker with hundreds of thousands of queues needs seconds for it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from json import JSONDecodeError
from threading import Lock
from typing import Final

from penstock import Connection
from penstock.client.errors import BrokerError, NotFoundError, NotSupportedError
from penstock.client.records import Queue
from penstock_operator.api import (
    BindingSpec,
    ExchangeSpec,
    PermissionSpec,
    PolicySpec,
    QueueSpec,
    StreamSpec,
    TopicPermissionSpec,
    TopologySpec,
    UserSpec,
    VHostSpec,
)
from penstock_operator.api.topology import X_QUEUE_TYPE
from penstock_operator.desired.topology import Fields, identity, wanted

AGE_SECONDS: Final = 1.0
AGE_SECONDS_MAX: Final = 30.0
# Arguments that say that something is a stream, and of how many partitions.
OF_EVERY_STREAM: Final = frozenset({"x-queue-type", "x-partitions"})
_GRANTS: Final = frozenset({PermissionSpec.__name__, TopicPermissionSpec.__name__})
KEPT_SECONDS: Final = 60.0
# So many queues are asked for one by one before all are listed: a broker may have many that no manifest describes.
SINGLES_MAX: Final = 4
ACCOUNTS: Final = ("accounts", "")
# Of all lists of brokers that Secrets lead to, by the text of their rows; the lists of other ones are forgotten.
FOREIGN_LENGTH_MAX: Final = 8 << 20
# What a row takes beside its text.
ROW_LENGTH: Final = 256
# Names of limits in definitions, as other brokers write them, and in the client.
LIMITS: Final = {
    "max-queues": "queues_max",
    "max-connections": "connections_max",
    "max-channels": "streams_max",
    "publish-rate": "publish_rate",
    "publish-bytes-rate": "publish_bytes_rate",
    "max-in-flight-bytes": "in_flight_bytes_max",
    "max-message-bytes": "message_bytes_max",
}
# What is listed, and in which virtual host.
Table = tuple[str, str]
Row = tuple[str, ...]
Rows = dict[Row, Fields]


@dataclass(slots=True)
class _Shelf:
    """One table of one broker. The lock lets one thread list and the others wait for it."""

    lock: Lock = field(default_factory=Lock)
    rows: Rows | None = None
    began: float = 0.0
    age_max: float = 0.0
    single_count: int = 0
    counted_since: float = 0.0
    # Of its rows as text, where the broker is not the operator's.
    length: int = 0


class Listings:
    """Thread-safe."""

    def __init__(
        self, clock: Callable[[], float], see_digests: Callable[[str, dict[str, str], float], None] | None = None
    ) -> None:
        """Make it; `see_digests` takes a host, the digests of its users' passwords, and when listing them began."""
        self._clock = clock
        self._see_digests = see_digests
        self._lock = Lock()
        self._shelves: dict[tuple[str, Table], _Shelf] = {}

    def find(self, broker: Connection, host: str, spec: TopologySpec) -> Fields | None:
        """Return the broker's fields in the form of `desired.topology.wanted`; None when the thing does not exist."""
        shelf = self._shelf(host, _table(spec))
        with shelf.lock:
            now = self._clock()
            if shelf.rows is None or now - shelf.began > shelf.age_max:
                if isinstance(spec, QueueSpec) and _is_single(shelf, now):
                    return _single_queue(broker, spec)
                _fill(shelf, broker, _table(spec), self._clock)
                if is_foreign(host):
                    self._make_room(shelf)
                if _table(spec) == ACCOUNTS and self._see_digests is not None:
                    self._see_digests(host, _digests(shelf.rows or {}), shelf.began)
            assert shelf.rows is not None
            found = shelf.rows.get(_row(spec))
        return _with_limits(broker, spec, found)

    def put(self, host: str, spec: TopologySpec, *, is_new: bool) -> None:
        """Note that the broker has it now."""
        self._note(host, spec, lambda rows: rows.update({_row(spec): wanted(spec)}))
        if is_new and isinstance(spec, QueueSpec | StreamSpec | ExchangeSpec):
            self._drop(host, ("bindings", spec.vhost))  # those of a queue or an exchange that was gone are gone

    def removed(self, host: str, spec: TopologySpec) -> None:
        """Note that it is gone, and what went with it."""
        self._note(host, spec, lambda rows: _remove(rows, spec))
        if isinstance(spec, QueueSpec | StreamSpec | ExchangeSpec):
            self._drop(host, ("bindings", spec.vhost))
        if isinstance(spec, VHostSpec):
            for kind in _LISTED:
                self._drop(host, (kind, spec.name))

    def age_max(self) -> float:
        """Return the seconds after which no list of now is used any more."""
        with self._lock:
            return max([AGE_SECONDS, *(each.age_max for each in self._shelves.values())])

    def forget(self, host: str) -> None:
        """Forget a broker, which may come back with other contents."""
        with self._lock:
            for place in [each for each in self._shelves if each[0] == host]:
                del self._shelves[place]

    def _make_room(self, filled: _Shelf) -> None:
        """Forget the oldest lists of other brokers that the operator does not run, when all take too much memory."""
        rows = filled.rows or {}
        filled.length = sum(ROW_LENGTH + len(repr(each)) for each in rows.items())
        with self._lock:
            foreign = [(each.began, place) for place, each in self._shelves.items() if is_foreign(place[0])]
            total = sum(self._shelves[place].length for _, place in foreign)
            for _, place in sorted(foreign):
                if total <= FOREIGN_LENGTH_MAX:
                    return
                if self._shelves[place] is not filled:
                    total -= self._shelves.pop(place).length

    def _note(self, host: str, spec: TopologySpec, change: Callable[[Rows], None]) -> None:
        shelf = self._shelf(host, _table(spec))
        with shelf.lock:
            if shelf.rows is not None:
                change(shelf.rows)

    def _shelf(self, host: str, table: Table) -> _Shelf:
        with self._lock:
            return self._shelves.setdefault((host, table), _Shelf())

    def _drop(self, host: str, table: Table) -> None:
        with self._lock:
            self._shelves.pop((host, table), None)


def is_foreign(place: str) -> bool:
    """Return whether a Secret leads to the broker, by the place of what is known of it. No host contains a slash."""
    return "/" in place


def _is_single(shelf: _Shelf, now: float) -> bool:
    """Return whether few of them were asked for lately, so that one is cheaper than all."""
    if now - shelf.counted_since > KEPT_SECONDS:
        shelf.counted_since, shelf.single_count, shelf.rows = now, 0, None
    shelf.single_count += 1
    return shelf.single_count <= SINGLES_MAX


def _fill(shelf: _Shelf, broker: Connection, table: Table, clock: Callable[[], float]) -> None:
    shelf.rows, shelf.began = None, clock()
    try:
        shelf.rows = dict(_LISTED[table[0]](broker, table[1]))
    except (LookupError, TypeError, AttributeError, RecursionError, JSONDecodeError) as error:
        raise BrokerError("the broker's answer cannot be read; is it another broker?") from error
    took = clock() - shelf.began
    shelf.age_max = min(AGE_SECONDS_MAX, max(AGE_SECONDS, 10 * took))


def _digests(rows: Rows) -> dict[str, str]:
    return {row[1]: fields["digest"] for row, fields in rows.items() if row[0] == UserSpec.__name__}


def _table(spec: TopologySpec) -> Table:
    match spec:
        case QueueSpec():
            return "queues", spec.vhost
        case StreamSpec():
            return "streams", spec.vhost
        case ExchangeSpec():
            return "exchanges", spec.vhost
        case BindingSpec():
            return "bindings", spec.vhost
        case PolicySpec():
            return "policies", spec.vhost
    return ACCOUNTS


def _row(spec: TopologySpec) -> Row:
    return (type(spec).__name__, *identity(spec))


def _remove(rows: Rows, spec: TopologySpec) -> None:
    """Remove a row; a user and a virtual host take their permissions along."""
    rows.pop(_row(spec), None)
    if isinstance(spec, UserSpec | VHostSpec):
        place = 2 if isinstance(spec, UserSpec) else 1
        for row in [each for each in rows if each[0] in _GRANTS and each[place] == spec.name]:
            del rows[row]


# ------------------------------------------------------------ what is listed


def _accounts(broker: Connection, _: str) -> Iterator[tuple[Row, Fields]]:
    """Yield virtual hosts, users and permissions: the definitions have all of them, with limits, in one answer."""
    found = json.loads(broker.admin.export_definitions())
    limits = {each["vhost"]: each["value"] for each in found["parameters"] if each.get("component") == "vhost-limits"}
    for vhost in found["vhosts"]:
        fields: Fields = {"limits": _limits(limits.get(vhost["name"], {})), "shards": vhost.get("shards", 1)}
        fields["defaultQueueType"] = vhost.get("default_queue_type", "classic")
        yield (VHostSpec.__name__, vhost["name"]), fields
    for user in found["users"]:
        fields = {"tags": sorted(user["tags"]), "digest": str(user.get("password_hash") or "")}
        fields["algorithm"] = str(user.get("hashing_algorithm") or "")
        if "limits" in user:  # not from a broker from before users had limits
            fields["limits"] = _limits(user["limits"])
        yield (UserSpec.__name__, user["name"]), fields
    for each in found["permissions"]:
        fields = {name: each[name] for name in ("configure", "write", "read")}
        yield (PermissionSpec.__name__, each["vhost"], each["user"]), fields
    for each in found.get("topic_permissions", ()):  # older brokers have none
        place = (each["vhost"], each["user"], each["exchange"])
        yield (TopicPermissionSpec.__name__, *place), {"write": each["write"], "read": each["read"]}


def _queues(broker: Connection, vhost: str) -> Iterator[tuple[Row, Fields]]:
    for queue in broker.admin.list_queues():
        yield (QueueSpec.__name__, vhost, queue.name), _queue_fields(queue)


def _streams(broker: Connection, vhost: str) -> Iterator[tuple[Row, Fields]]:
    for stream in broker.admin.list_streams():
        arguments = {key: value for key, value in stream.arguments.items() if key not in OF_EVERY_STREAM}
        yield (StreamSpec.__name__, vhost, stream.name), {"partitions": len(stream.partitions), "arguments": arguments}


def _exchanges(broker: Connection, vhost: str) -> Iterator[tuple[Row, Fields]]:
    for exchange in broker.admin.list_exchanges():
        fields = {
            "type": exchange.type,
            "durable": exchange.durable,
            "autoDelete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": dict(exchange.arguments),
        }
        yield (ExchangeSpec.__name__, vhost, exchange.name), fields


def _bindings(broker: Connection, vhost: str) -> Iterator[tuple[Row, Fields]]:
    for each in broker.admin.list_bindings():
        arguments = repr(sorted(each.arguments.items()))
        place = (each.source, each.destination_kind, each.destination, each.routing_key, arguments)
        yield (BindingSpec.__name__, vhost, *place), {}


def _policies(broker: Connection, vhost: str) -> Iterator[tuple[Row, Fields]]:
    for is_operator in (False, True):
        for policy in broker.admin.list_policies(is_operator):
            fields = {
                "pattern": policy.pattern,
                "applyTo": policy.apply_to,
                "priority": policy.priority,
                "definition": dict(policy.definition),
            }
            yield (PolicySpec.__name__, vhost, policy.name, str(is_operator)), fields


_LISTED: Final[dict[str, Callable[[Connection, str], Iterator[tuple[Row, Fields]]]]] = {
    "accounts": _accounts,
    "queues": _queues,
    "streams": _streams,
    "exchanges": _exchanges,
    "bindings": _bindings,
    "policies": _policies,
}


def _single_queue(broker: Connection, spec: QueueSpec) -> Fields | None:
    try:
        return _queue_fields(broker.admin.get_queue(spec.name))
    except NotFoundError:
        return None


def _queue_fields(queue: Queue) -> Fields:
    """Return the fields; a classic queue may be declared with its type or without it."""
    arguments = {name: value for name, value in queue.arguments.items() if (name, value) != (X_QUEUE_TYPE, "classic")}
    return {"durable": queue.durable, "autoDelete": queue.auto_delete, "arguments": arguments}


def _limits(found: dict[str, int]) -> Fields:
    """Return the limits that a manifest can name."""
    return {LIMITS[name]: value for name, value in found.items() if name in LIMITS}


def _with_limits(broker: Connection, spec: TopologySpec, found: Fields | None) -> Fields | None:
    """Return the user with limits, which an older broker's definitions lack."""
    if found is None or not isinstance(spec, UserSpec) or "limits" in found:
        return found
    try:
        limits = broker.admin.get_user_limits(spec.name)
    except NotSupportedError:
        return {**found, "limits": {}}
    return {**found, "limits": {name: getattr(limits, name) for name in spec.limits.on_broker()}}
