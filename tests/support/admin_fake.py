"""A broker of dictionaries behind the client's connection, with the operator's calls and their refusals.

One broker has many connections, one per vhost.
"""

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from penstock.client.errors import (
    AccessRefusedError,
    ConnectionLostError,
    InvalidArgumentError,
    InvalidUriError,
    NotAuthenticatedError,
    NotFoundError,
    NotSupportedError,
    PreconditionFailedError,
)
from penstock.client.records import (
    Binding,
    Exchange,
    Policy,
    Queue,
    Recovery,
    Status,
    StreamInfo,
    UserLimits,
)
from penstock.client.uri import Address
from penstock_operator.links.listings import LIMITS

NAME_BYTES_MAX = 255
HEADER_BYTES_MAX = 16_384


@dataclass
class FakeBroker:
    """A fake broker; `is_up` False refuses all. Passwords are plain here."""

    passwords: dict[str, str] = field(default_factory=dict)
    tags: dict[str, tuple[str, ...]] = field(default_factory=dict)
    permissions: dict[tuple[str, str], tuple[str, str, str]] = field(default_factory=dict)
    topic_permissions: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    vhosts: dict[str, dict[str, dict[Any, Any]]] = field(default_factory=dict)
    shards: dict[str, int] = field(default_factory=dict)
    default_queue_types: dict[str, str] = field(default_factory=dict)
    limits: dict[str, dict[str, int | None]] = field(default_factory=dict)
    """Limits of virtual hosts, and of users behind an @; those that are set."""
    has_user_limits: bool = True
    """False: it is one from before users had limits."""
    calls: list[str] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    """The questions, beside `calls`, which change something."""
    tried: list[str] = field(default_factory=list)
    """Users who logged in, or tried to."""
    closed: list[str] = field(default_factory=list)
    """Virtual hosts of connections that were closed."""
    refused_count: int = 0
    """Connections that reached no broker."""
    is_up: bool = True
    previous: dict[str, str] = field(default_factory=dict)
    """Passwords that are still accepted beside the current ones."""
    takes_clients: bool = True
    """False: connections that are open stay, and no new one is made."""
    data_id: str = "data-1"
    random: set[str] = field(default_factory=set)
    """Users whose passwords were sent as random ones: their digests are cheap."""

    def digest(self, user: str) -> dict[str, str]:
        """Return the fields of definitions that tell of a user's password."""
        password = self.passwords.get(user)
        if user not in self.random or password is None:
            return {"password_hash": f"digest of {password}", "hashing_algorithm": "argon2id"}
        content = b"s" * 16 + hashlib.sha256(b"s" * 16 + password.encode()).digest()
        return {"password_hash": base64.b64encode(content).decode(), "hashing_algorithm": "penstock_random_sha256"}

    @classmethod
    def new(cls, password: str) -> "FakeBroker":
        """Return a broker with an empty data directory."""
        made = cls({"admin": password}, {"admin": ("administrator",)})
        made.vhosts["/"] = {"queues": {}, "exchanges": {}, "bindings": {}, "policies": {}}
        made.permissions["admin", "/"] = (".*", ".*", ".*")
        return made

    def connect(self, address: Address) -> "FakeConnection":
        if not self.is_up or not self.takes_clients:
            self.refused_count += 1
            raise ConnectionLostError(f"no broker answers at {address.target}")
        if len(address.vhost.encode()) > NAME_BYTES_MAX:
            raise InvalidUriError("the URI's vhost has more than 255 bytes")
        if len(address.password) > HEADER_BYTES_MAX:
            raise ConnectionLostError("grpc-status header missing, mapped from HTTP status code 431")
        self.tried.append(address.user)
        if address.password not in {self.passwords.get(address.user), self.previous.get(address.user)}:
            raise NotAuthenticatedError(f"user '{address.user}' cannot log in")
        if address.vhost not in self.vhosts:
            raise NotFoundError(f"vhost '{address.vhost}' does not exist")
        if self.limits.get(f"@{address.user}", {}).get("connections_max") == 0:
            raise PreconditionFailedError(f"connection of user '{address.user}' would exceed the limit of 0")
        return FakeConnection(self, address)


def _queue(name: str, found: dict[str, Any]) -> Queue:
    counts = (0,) * 8
    return Queue(name, found["durable"], False, found["auto_delete"], found["arguments"], *counts)


def _stream(name: str, partitions: int, arguments: dict[str, Any]) -> StreamInfo:
    names = tuple(f"{name}-{number}" for number in range(partitions)) if partitions > 1 else (name,)
    return StreamInfo(name, names, {"x-queue-type": "stream", **arguments}, 0, 0, 0)


def _written(limits: dict[str, int | None]) -> dict[str, int]:
    """Return limits in the format of definitions."""
    keys = {name: key for key, name in LIMITS.items()}
    return {keys[name]: value for name, value in limits.items() if value is not None}


class FakeConnection:
    """The verbs that the operator uses."""

    def __init__(self, broker: FakeBroker, address: Address) -> None:
        self._broker = broker
        self._vhost = address.vhost
        self._user = address.user
        self.admin = self

    def close(self) -> None:
        self._broker.closed.append(self._vhost)

    def status(self) -> Status:
        self._check_up()
        nothing = Recovery(0, 0, 0, 0)
        data_id = self._broker.data_id
        return Status("9.9", "fake", 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, nothing, "/data", data_id=data_id)

    def create_vhost(self, name: str, shards: int = 1, default_queue_type: str | None = None) -> bool:
        self._call(f"create vhost {name}")
        if default_queue_type is not None:
            self._broker.default_queue_types[name] = default_queue_type
        self._broker.shards.setdefault(name, shards)
        self._broker.vhosts.setdefault(name, {"queues": {}, "exchanges": {}, "bindings": {}, "policies": {}})
        return True

    def set_vhost_shards(self, name: str, shards: int) -> None:
        self._call(f"set {shards} shards of vhost {name}")
        if shards < self._broker.shards[name]:
            raise PreconditionFailedError(f"vhost '{name}' has {self._broker.shards[name]} shards")
        self._broker.shards[name] = shards

    def export_definitions(self) -> bytes:
        """Return users, permissions and virtual hosts, as the broker does; without what virtual hosts have."""
        self._list("accounts")
        broker = self._broker
        users: list[dict[str, Any]] = [
            {"name": name, "tags": list(tags), **broker.digest(name)} for name, tags in broker.tags.items()
        ]
        for user in users if broker.has_user_limits else []:
            user["limits"] = _written(broker.limits.get(f"@{user['name']}", {}))
        permissions = [
            {"user": user, "vhost": vhost, "configure": each[0], "write": each[1], "read": each[2]}
            for (user, vhost), each in broker.permissions.items()
        ]
        parameters = [
            {"name": "limits", "vhost": vhost, "component": "vhost-limits", "value": _written(broker.limits[vhost])}
            for vhost in broker.vhosts
            if vhost in broker.limits
        ]
        vhosts: list[dict[str, Any]] = [{"name": name, "shards": broker.shards.get(name, 1)} for name in broker.vhosts]
        for vhost in vhosts:
            if vhost["name"] in broker.default_queue_types:
                vhost["default_queue_type"] = broker.default_queue_types[vhost["name"]]
        topics = [
            {"user": user, "vhost": vhost, "exchange": exchange, "write": each[0], "read": each[1]}
            for (user, vhost, exchange), each in broker.topic_permissions.items()
        ]
        rights = {"users": users, "permissions": permissions, "topic_permissions": topics}
        return json.dumps({**rights, "vhosts": vhosts, "parameters": parameters}).encode()

    def set_vhost_limits(self, name: str, **limits: int | None) -> None:
        self._call(f"limit vhost {name}")
        self._broker.limits[name] = limits

    def get_user_limits(self, name: str) -> UserLimits:
        self._check_up()
        self._check_user_limits()
        return UserLimits(connection_count=0, **self._broker.limits.get(f"@{name}", {}))

    def set_user_limits(self, name: str, **limits: int | None) -> None:
        self._check_user_limits()
        self._call(f"limit user {name}")
        self._broker.limits[f"@{name}"] = limits

    def _check_user_limits(self) -> None:
        if not self._broker.has_user_limits:
            raise NotSupportedError("there is no such method")

    def delete_vhost(self, name: str) -> None:
        self._call(f"delete vhost {name}")
        if self._broker.vhosts.pop(name, None) is None:
            raise NotFoundError(f"vhost '{name}' not found")

    def get_queue(self, name: str) -> Queue:
        self._list("a queue")
        found = self._things("queues").get(name)
        if found is None:
            raise NotFoundError(f"queue '{name}' not found")
        return _queue(name, found)

    def list_queues(self) -> list[Queue]:
        self._list("queues")
        return [_queue(name, found) for name, found in self._things("queues").items()]

    def declare_queue(self, name: str, *, durable: bool, auto_delete: bool, arguments: dict[str, Any]) -> None:
        self._call(f"declare queue {name}")
        kind = arguments.get("x-queue-type", self._broker.default_queue_types.get(self._vhost, "classic"))
        arguments = {key: value for key, value in arguments.items() if key != "x-queue-type"}
        arguments |= {"x-queue-type": kind} if kind != "classic" else {}
        self._declare("queues", name, {"durable": durable, "auto_delete": auto_delete, "arguments": arguments})

    def delete_queue(self, name: str, *, if_unused: bool, if_empty: bool) -> int:
        self._call(f"delete queue {name}")
        found = self._things("queues").get(name, {})
        if if_empty and found.get("messages"):
            raise PreconditionFailedError(f"queue '{name}' is not empty")
        return self._drop("queues", name)

    def list_streams(self) -> list[StreamInfo]:
        self._list("streams")
        return [_stream(name, *found) for name, found in self._things("streams").items()]

    def declare_stream(self, name: str, partitions: int, *, arguments: dict[str, Any]) -> None:
        self._call(f"declare stream {name}")
        self._declare("streams", name, (partitions, arguments))

    def delete_stream(self, name: str) -> int:
        self._call(f"delete stream {name}")
        return self._drop("streams", name)

    def list_exchanges(self) -> list[Exchange]:
        self._list("exchanges")
        return [Exchange(name, *each) for name, each in self._things("exchanges").items()]

    def declare_exchange(self, name: str, *fields: Any) -> None:
        self._call(f"declare exchange {name}")
        self._declare("exchanges", name, fields)

    def delete_exchange(self, name: str) -> None:
        self._call(f"delete exchange {name}")
        self._drop("exchanges", name)

    def list_bindings(self) -> list[Binding]:
        self._list("bindings")
        keys = list(self._things("bindings"))
        return [Binding(key[0], key[1], key[2], key[3], dict(key[4])) for key in keys]

    def bind_queue(self, destination: str, source: str, routing_key: str, arguments: dict[str, Any]) -> None:
        self._call(f"bind {source} {destination}")
        for kind, name in (("exchanges", source), ("queues", destination)):
            if name not in self._things(kind):
                raise NotFoundError(f"{kind[:-1]} '{name}' not found")
        self._things("bindings")[source, "queue", destination, routing_key, tuple(arguments.items())] = True

    def unbind_queue(self, destination: str, source: str, routing_key: str, arguments: dict[str, Any]) -> None:
        self._call(f"unbind {source} {destination}")
        self._drop("bindings", (source, "queue", destination, routing_key, tuple(arguments.items())))

    def put_user(self, name: str, password: str | None, tags: list[str], *, random_password: bool = False) -> bool:
        self._call(f"put user {name}")
        if password is not None:
            (self._broker.random.add if random_password else self._broker.random.discard)(name)
        self._broker.tags[name] = tuple(tags)
        if password is not None:
            self._broker.passwords[name] = password
        return True

    def delete_user(self, name: str) -> None:
        self._call(f"delete user {name}")
        self._broker.passwords.pop(name, None)
        if self._broker.tags.pop(name, None) is None:
            raise NotFoundError(f"user '{name}' not found")

    def set_permission(self, user: str, vhost: str, configure: str, write: str, read: str) -> None:
        self._call(f"set permission {user}")
        if user not in self._broker.tags:
            raise NotFoundError(f"user '{user}' not found")
        if vhost not in self._broker.vhosts:
            raise NotFoundError(f"vhost '{vhost}' not found")
        self._broker.permissions[user, vhost] = (configure, write, read)

    def list_policies(self, operator: bool) -> list[Policy]:
        self._list("policies")
        found = self._things("policies")
        return [Policy(name, *each) for (name, is_operator), each in found.items() if is_operator is operator]

    def set_policy(
        self, name: str, pattern: str, definition: dict[str, Any], apply_to: str, priority: int, operator: bool
    ) -> None:
        self._call(f"set policy {name}")
        if "max-what" in definition:
            raise InvalidArgumentError(f"policy '{name}' sets 'max-what', which nothing acts upon")
        if "deep" in definition:
            raise ValueError("field 'deep' is nested more than 64 deep")
        self._things("policies")[name, operator] = (pattern, apply_to, priority, definition)

    def delete_policy(self, name: str, operator: bool) -> None:
        self._call(f"clear policy {name}")
        self._drop("policies", (name, operator))

    def delete_permission(self, user: str, vhost: str) -> None:
        self._call(f"clear permission {user}")
        if self._broker.permissions.pop((user, vhost), None) is None:
            raise NotFoundError(f"user '{user}' has no permission in vhost '{vhost}'")

    def set_topic_permission(self, user: str, exchange: str, vhost: str, write: str, read: str) -> None:
        self._call(f"set topic permission {user}")
        self._broker.topic_permissions[user, vhost, exchange] = (write, read)

    def delete_topic_permission(self, user: str, exchange: str, vhost: str) -> None:
        self._call(f"clear topic permission {user}")
        if self._broker.topic_permissions.pop((user, vhost, exchange), None) is None:
            raise NotFoundError(f"user '{user}' has no topic permission on '{exchange}'")

    # ------------------------------------------------------------ how

    def _check_up(self) -> None:
        if not self._broker.is_up:
            raise ConnectionLostError("the connection broke")

    def _list(self, what: str) -> None:
        self._check_up()
        self._broker.lists.append(what)

    def _call(self, what: str) -> None:
        self._check_up()
        self._broker.calls.append(what)

    def _things(self, kind: str) -> dict[Any, Any]:
        self._check_up()
        if self._vhost not in self._broker.vhosts:
            raise NotFoundError(f"vhost '{self._vhost}' not found")
        if (self._user, self._vhost) not in self._broker.permissions:
            raise AccessRefusedError(f"access to vhost '{self._vhost}' refused for user '{self._user}'")
        return self._broker.vhosts[self._vhost].setdefault(kind, {})

    def _declare(self, kind: str, name: str, wanted: Any) -> None:
        found = self._things(kind).setdefault(name, wanted)
        if found != wanted:
            raise PreconditionFailedError(f"{kind[:-1]} '{name}' is there with other fields")

    def _drop(self, kind: str, key: Any) -> int:
        if self._things(kind).pop(key, None) is None:
            raise NotFoundError(f"{kind[:-1]} {key!r} not found")
        return 0
