"""The definitions JSON of RabbitMQ and LavinMQ, to commands and from entries: pure translation, no vhost is touched.

Nothing is dropped in silence: what this broker cannot do is gathered as problems, each naming the thing and the rule.
Argument values that JSON lacks travel as objects of one key: $bytes (base64), $timestamp, $decimal, $float.
"""

import json
import math
from base64 import b64decode, b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from penstock.identity.permissions import whole_pattern
from penstock.metadata import check_shard_count
from penstock.metadata.commands import DeclareExchange, DeclareQueue, SetDefaultQueueType, SetLimits, SetPolicy
from penstock.metadata.effects import Entry, PersistBound, PersistExchange, PersistQueue
from penstock.model.arguments import DEPTH_MAX, Arguments, Decimal, Timestamp, Value
from penstock.model.errors import InvalidArgumentError, RefusedError, Thing
from penstock.model.limits import Holder, read_limits
from penstock.model.names import (
    DEFAULT_EXCHANGE,
    ConnectionId,
    VhostName,
    exchange_name,
    queue_name,
    routing_key,
    vhost_name,
)
from penstock.model.old_names import OF_ARGUMENTS, OF_POLICIES, with_todays_names
from penstock.model.records import STAGE_PREFIX, X_QUEUE_TYPE, Access, Binding, DestinationKind, QueueKind
from penstock.vhost.policies_json import OPERATOR_POLICY, POLICY_KEYS, VHOST_LIMITS, read_policy

JSON = dict[str, Any]

NO_CONNECTION: Final = ConnectionId(0)
EXPORT: Final = Thing("definitions", "export")
DEFINITIONS: Final = Thing("definitions", "import")
ABOUT_THE_OTHER_BROKER: Final = frozenset(
    {
        "explanation",
        "lavinmq_version",
        "original_cluster_name",
        "original_vhost_name",
        "penstock_version",
        "product_name",
        "product_version",
        "rabbit_version",
        "rabbitmq_definition_format",
        "rabbitmq_version",
    }
)
PARAMETERS_OF_THE_OTHER_CLUSTER: Final = frozenset({"cluster_name", "cluster_tags", "internal_cluster_id"})
LISTS: Final = (
    *("users", "permissions", "topic_permissions", "vhosts", "exchanges", "queues", "bindings"),
    *("policies", "parameters", "global_parameters"),
)
OF_ONE_VHOST: Final = frozenset({"default_queue_type", "description", "metadata", "tags"})
"""Keys beside the lists, in the export of one virtual host."""
VHOST_KEYS: Final = frozenset({"name", "shards", "description", "tags", "metadata", "default_queue_type", "limits"})
EXCHANGE_KEYS: Final = frozenset({"name", "vhost", "type", "durable", "auto_delete", "internal", "arguments"})
QUEUE_KEYS: Final = frozenset({"name", "vhost", "type", "durable", "auto_delete", "arguments"})
BINDING_KEYS: Final = frozenset(
    {"source", "vhost", "destination", "destination_type", "routing_key", "arguments", "properties_key"}
)


@dataclass(slots=True)
class Definitions:
    """The content of a JSON text. `users`, `permissions` and `topics` stay as they are: another package reads them."""

    vhosts: list[VhostName] = field(default_factory=list)
    shard_counts: dict[VhostName, int] = field(default_factory=dict)
    """Of those for which the text has a number."""
    exchanges: list[tuple[VhostName, DeclareExchange]] = field(default_factory=list)
    queues: list[tuple[VhostName, DeclareQueue]] = field(default_factory=list)
    bindings: list[tuple[VhostName, Binding]] = field(default_factory=list)
    policies: list[tuple[VhostName, SetPolicy | SetLimits | SetDefaultQueueType]] = field(default_factory=list)
    users: list[JSON] = field(default_factory=list)
    permissions: list[JSON] = field(default_factory=list)
    topics: list[JSON] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def read_definitions(text: bytes, into: VhostName | None, *, skips: bool = False) -> Definitions:
    """Read a document; raise InvalidArgumentError if it is no definitions at all.

    `into` is for the export of one vhost, whose objects do not name it. Unsupported objects are listed in
    `problems`; with `skips` they are left out, too.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        place = f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InvalidArgumentError(DEFINITIONS, f"is not JSON: {place}", "send an unchanged export") from error
    if not isinstance(document, dict):
        raise InvalidArgumentError(DEFINITIONS, "is not a JSON object", "send an unchanged export")
    return _Reader(into, skips=skips).read(document)


def write_topology(entries: Iterable[Entry], vhost: VhostName | None) -> dict[str, list[JSON]]:
    """Return the lists of exchanges, queues and bindings. Their objects name the vhost unless it is None."""
    place: JSON = {} if vhost is None else {"vhost": vhost}
    lists: dict[str, list[JSON]] = {"exchanges": [], "queues": [], "bindings": []}
    for entry in entries:
        match entry:
            case PersistExchange(exchange):
                lists["exchanges"].append(
                    {
                        "name": exchange.name,
                        **place,
                        "type": exchange.kind.value,
                        "durable": exchange.durable,
                        "auto_delete": exchange.auto_delete,
                        "internal": exchange.internal,
                        "arguments": _write_arguments(exchange.arguments),
                    }
                )
            case PersistQueue(queue) if queue.name.startswith(STAGE_PREFIX):
                continue  # what waits in it is no definition
            case PersistQueue(queue):
                lists["queues"].append(
                    {
                        "name": queue.name,
                        **place,
                        "type": queue.kind.value,
                        "durable": queue.durable,
                        "auto_delete": queue.auto_delete,
                        "arguments": _write_arguments(queue.arguments),
                    }
                )
            case PersistBound(binding) if not binding.destination.startswith(STAGE_PREFIX):
                lists["bindings"].append(
                    {
                        "source": binding.source,
                        **place,
                        "destination": binding.destination,
                        "destination_type": binding.destination_kind.value,
                        "routing_key": binding.routing_key,
                        "arguments": _write_arguments(binding.arguments),
                    }
                )
    return lists


class _Reader:
    """Goes through one document, and notes problems instead of stopping at the first."""

    def __init__(self, into: VhostName | None, *, skips: bool) -> None:
        self._into = into
        self._skips = skips
        self._is_ours = False
        self._found = Definitions()

    def read(self, document: JSON) -> Definitions:
        for key in document:
            is_of_vhost = self._into is not None and key in OF_ONE_VHOST
            if key not in LISTS and key not in ABOUT_THE_OTHER_BROKER and not is_of_vhost:
                self._problem(f"'{key}' is unknown")
        if self._into is not None:
            self._default_queue_type_of(self._into, document)
        for item in self._objects(document, "global_parameters"):
            if str(item.get("name")) not in PARAMETERS_OF_THE_OTHER_CLUSTER:
                self._problem(f"global_parameters: '{item.get('name', '')}' is not supported yet")
        self._found.users = self._objects(document, "users")
        self._is_ours = "penstock_version" in document
        whole = (lambda item: item) if self._is_ours else _whole_patterns
        self._found.permissions = list(map(whole, self._objects(document, "permissions")))
        self._found.topics = list(map(whole, self._objects(document, "topic_permissions")))
        for key, read in (
            ("vhosts", self._vhost),
            ("exchanges", self._exchange),
            ("queues", self._queue),
            ("bindings", self._binding),
            ("policies", self._policy),
            ("parameters", self._parameter),
        ):
            for item in self._objects(document, key):
                problem_count = len(self._found.problems)
                try:
                    read(item)
                except RefusedError as refusal:
                    self._problem(f"{key}: {refusal.failure}")
                    continue
                # A vhost is needed by what is in it, also without what is not supported of it.
                if self._skips and len(self._found.problems) > problem_count and key != "vhosts":
                    self._leave_out_last(key)
        return self._found

    def _leave_out_last(self, key: str) -> None:
        lists: dict[str, list[Any]] = {
            "exchanges": self._found.exchanges,
            "queues": self._found.queues,
            "bindings": self._found.bindings,
            "policies": self._found.policies,
        }
        if lists.get(key):
            lists[key].pop()

    def _vhost(self, item: JSON) -> None:
        """Read a vhost; ignore metadata that only describes it to people."""
        self._known(item, VHOST_KEYS)
        name = vhost_name(_text(item, "name"))
        if item.get("limits"):
            self._limits_of(name, item["limits"])
        self._default_queue_type_of(name, item)
        shard_count = item.get("shards")
        if shard_count is not None and (not isinstance(shard_count, int) or isinstance(shard_count, bool)):
            self._problem(f"vhost '{name}': shards must be a number")
        elif shard_count is not None:
            self._found.shard_counts[name] = check_shard_count(Thing("vhost", name), shard_count)
        self._found.vhosts.append(name)

    def _default_queue_type_of(self, vhost: VhostName, item: JSON) -> None:
        """Take the default type, which RabbitMQ writes into the metadata, too; the former counts."""
        metadata = item.get("metadata")
        described = metadata.get("default_queue_type") if isinstance(metadata, dict) else None
        given = [kind for kind in (item.get("default_queue_type"), described) if kind not in (None, "", "undefined")]
        if given and given[0] not in tuple(QueueKind):
            self._problem(f"vhost '{vhost}': the default queue type '{given[0]}' is not supported")
        elif given:
            self._found.policies.append((vhost, SetDefaultQueueType(given[0])))

    def _limits_of(self, vhost: VhostName, written: object) -> None:
        """Take limits that are written beside the name of a vhost: an object, or several."""
        limits: JSON = {}
        for part in written if isinstance(written, list) else [written]:
            if not isinstance(part, dict):
                self._problem(f"vhost '{vhost}': limits must be an object such as {{\"max-queues\": 10}}")
                return
            limits |= part
        self._found.policies.append((vhost, SetLimits(read_limits(Holder.VHOST, vhost, limits))))

    def _exchange(self, item: JSON) -> None:
        self._known(item, EXCHANGE_KEYS)
        command = DeclareExchange(
            exchange_name(_text(item, "name")),
            _text(item, "type"),
            _flag(item, "durable", default=True),
            _flag(item, "auto_delete"),
            _flag(item, "internal"),
            _read_arguments(item),
        )
        if command.name != DEFAULT_EXCHANGE:
            self._found.exchanges.append((self._place(item), command))

    def _queue(self, item: JSON) -> None:
        self._known(item, QUEUE_KEYS)
        name = queue_name(_text(item, "name"))
        if not name:
            raise _bad(item, "is a queue without a name")
        queue_type = item.get("type")
        if queue_type not in (None, *QueueKind):
            self._problem(f"queue '{name}': the type '{queue_type}' is not supported yet")
        arguments = _read_arguments(item)
        if self._is_ours:
            arguments = with_todays_names(arguments, OF_ARGUMENTS)
        if queue_type in (QueueKind.STREAM, QueueKind.QUORUM):
            arguments.setdefault(X_QUEUE_TYPE, queue_type)
        command = DeclareQueue(
            name,
            NO_CONNECTION,
            _flag(item, "durable", default=True),
            exclusive=False,
            auto_delete=_flag(item, "auto_delete"),
            arguments=arguments,
            may_be_reserved=True,
            takes_default_type=False,
        )
        self._found.queues.append((self._place(item), command))

    def _binding(self, item: JSON) -> None:
        self._known(item, BINDING_KEYS)
        kind = DestinationKind.EXCHANGE if item.get("destination_type") == "exchange" else DestinationKind.QUEUE
        destination = exchange_name if kind is DestinationKind.EXCHANGE else queue_name
        binding = Binding(
            exchange_name(_text(item, "source")),
            kind,
            destination(_text(item, "destination")),
            routing_key(_text(item, "routing_key")),
            _read_arguments(item),
        )
        is_implied = binding.source == DEFAULT_EXCHANGE and str(binding.destination) == binding.routing_key
        if not is_implied:
            self._found.bindings.append((self._place(item), binding))

    def _policy(self, item: JSON) -> None:
        self._known(item, POLICY_KEYS)
        place = self._place(item)
        self._found.policies.append((place, read_policy(place, self._policy_of(item), is_operator=False)))

    def _policy_of(self, item: JSON) -> JSON:
        """Return a policy with today's names; those of another broker mean what they meant there."""
        definition = item.get("definition")
        if not self._is_ours or not isinstance(definition, dict):
            return item
        return {**item, "definition": with_todays_names(definition, OF_POLICIES)}

    def _parameter(self, item: JSON) -> None:
        """Operators' policies and limits travel as parameters."""
        if item.get("component") == VHOST_LIMITS and isinstance(item.get("value"), dict):
            place = self._place(item)
            self._found.policies.append((place, SetLimits(read_limits(Holder.VHOST, place, item["value"]))))
            return
        if item.get("component") != OPERATOR_POLICY or not isinstance(item.get("value"), dict):
            self._problem(f"parameters: '{item.get('name', '')}' is not supported yet")
            return
        place = self._place(item)
        policy = read_policy(place, {**self._policy_of(item["value"]), "name": item.get("name")}, is_operator=True)
        self._found.policies.append((place, policy))

    def _place(self, item: JSON) -> VhostName:
        if self._into is not None:
            return self._into
        return vhost_name(_text(item, "vhost"))

    def _objects(self, document: JSON, key: str) -> list[JSON]:
        items = document.get(key) or []
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            self._problem(f"'{key}' is not a list of objects")
            return []
        return items

    def _known(self, item: JSON, keys: frozenset[str]) -> None:
        for key in item.keys() - keys:
            self._problem(f"'{item.get('name', item.get('source', ''))}' has an unknown key '{key}'")

    def _problem(self, problem: str) -> None:
        self._found.problems.append(problem)


def _whole_patterns(item: JSON) -> JSON:
    """Another broker's patterns, so that they match here what they matched there."""
    patterns = {key.value: whole_pattern(source) for key in Access if isinstance(source := item.get(key), str)}
    return {**item, **patterns}


def _text(item: JSON, key: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise _bad(item, f"needs a string for '{key}'")
    return value


def _flag(item: JSON, key: str, *, default: bool = False) -> bool:
    value = item.get(key, default)
    if not isinstance(value, bool):
        raise _bad(item, f"has a '{key}' that is neither true nor false")
    return value


def _bad(item: JSON, rule: str) -> InvalidArgumentError:
    name = str(item.get("name", item.get("source", "")))
    return InvalidArgumentError(Thing("object", name), rule, "send an unchanged export")


def _read_arguments(item: JSON) -> dict[str, Value]:
    arguments = item.get("arguments") or {}
    if not isinstance(arguments, dict):
        raise _bad(item, "has arguments that are not an object")
    return {key: _read_value(item, value, 1) for key, value in arguments.items()}


def _read_value(item: JSON, value: Any, depth: int) -> Value:
    if depth > DEPTH_MAX:
        raise _bad(item, f"has arguments nested deeper than {DEPTH_MAX}")
    if isinstance(value, list):
        return [_read_value(item, one, depth + 1) for one in value]
    if not isinstance(value, dict):
        plain: Value = value
        return plain
    if len(value) == 1:
        ((key, content),) = value.items()
        if key in ("$bytes", "$timestamp", "$decimal", "$float"):
            return _read_tagged(item, key, content)
    return {key: _read_value(item, one, depth + 1) for key, one in value.items()}


def _read_tagged(item: JSON, key: str, content: Any) -> Value:
    try:
        match key:
            case "$bytes":
                return b64decode(content, validate=True)
            case "$timestamp":
                return Timestamp(int(content))
            case "$decimal":
                return Decimal(int(content["scale"]), int(content["unscaled"]))
            case _:
                return float(content)
    except (TypeError, KeyError, ValueError, OverflowError) as error:
        raise _bad(item, f"has an argument whose {key} cannot be read") from error


def _write_arguments(arguments: Arguments) -> JSON:
    return {key: _write_value(value) for key, value in arguments.items()}


def _write_value(value: Value) -> Any:
    match value:
        case bytes():
            return {"$bytes": b64encode(value).decode()}
        case Timestamp(seconds):
            return {"$timestamp": seconds}
        case Decimal(scale, unscaled):
            return {"$decimal": {"scale": scale, "unscaled": unscaled}}
        case float() if not math.isfinite(value):
            return {"$float": str(value)}
        case list():
            return [_write_value(one) for one in value]
        case dict():
            return _write_arguments(value)
        case _:
            return value
