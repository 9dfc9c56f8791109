"""The audit log: log-ins, and calls that change something, done or refused, with user, address, connection and subject.
Each field is named here, so that no password or token is logged with a new one. A subject is cut at 4 KiB."""

import json
from collections.abc import Mapping
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import Message

from penstock.frontends.grpc.caller import Caller
from penstock.kit.logging import logger

SUBJECT_CHARACTERS_MAX: Final = 4_096

QUIET: Final = frozenset(
    {"DeclareExchange", "DeclareQueue", "DeclareStream", "Bind", "ReserveLease", "AckLeases", "StoreOffset"}
)
"""Clients repeat these at each start or all the time, most often without changing anything."""

# Method -> the fields of its request that say what it was about. Only these methods are logged.
AUDITED: Final[dict[str, tuple[str, ...]]] = {
    "CreateVhost": ("name",),
    "DeleteVhost": ("name",),
    "SetVhostLimits": ("vhost", "limits"),
    "SetUserLimits": ("name", "limits"),
    "PutUser": ("name", "tags"),
    "DeleteUser": ("name",),
    "SetPermission": (
        "permission.user",
        "permission.vhost",
        "permission.configure",
        "permission.write",
        "permission.read",
    ),
    "ClearPermission": ("user", "vhost"),
    "SetTopicPermission": (
        "permission.user",
        "permission.vhost",
        "permission.exchange",
        "permission.write",
        "permission.read",
    ),
    "ClearTopicPermission": ("user", "vhost", "exchange"),
    "SetPolicy": (
        *("vhost", "policy.name", "policy.pattern", "policy.apply_to", "policy.priority", "policy.definition"),
        "operator",
    ),
    "ClearPolicy": ("vhost", "name", "operator"),
    "ExportDefinitions": ("vhost",),
    "ImportDefinitions": ("vhost",),
    "Backup": ("directory",),
    "DeleteProducer": ("vhost", "producer"),
    "ReleaseLeases": ("vhost", "queue", "owner", "from"),
    "DeleteExchange": ("vhost", "name", "if_unused"),
    "DeleteQueue": ("vhost", "name", "if_unused", "if_empty"),
    "PurgeQueue": ("vhost", "name"),
    "Unbind": ("vhost", "binding"),
    "DeleteStream": ("vhost", "name"),
    "TrimStream": ("vhost", "partition", "before"),
    "DeleteGroup": ("vhost", "stream", "group"),
    "DeleteStage": ("vhost", "name"),
    "RefreshToken": (),
}
_log = logger("audit")


def log_in(user: str, peer: str, connection: int) -> None:
    """A user was authenticated on a connection for the first time."""
    _log.info("LogIn", outcome="done", user=user, peer=peer, connection=connection)


def tell(method: str, caller: Caller, peer: str, request: Message, refusal: str = "") -> None:
    """`refusal` is why it was not done."""
    fields = AUDITED.get(method)
    if fields is None:
        return
    about = _bounded({name.rpartition(".")[2]: _value(request, name) for name in fields})
    told = {"user": caller.user.name, "peer": peer, "connection": int(caller.connection), "about": about}
    if refusal:
        _log.warning(method, outcome="refused", refusal=refusal, **told)
    else:
        _log.info(method, outcome="done", **told)


def _value(request: Any, name: str) -> Any:
    for part in name.split("."):
        request = getattr(request, part)
    if isinstance(request, Message):
        return MessageToDict(request, preserving_proto_field_name=True)
    if isinstance(request, Mapping):
        return {key: MessageToDict(value) for key, value in request.items()}
    return request if isinstance(request, str | bool | int) else list(request)


def _bounded(about: dict[str, Any]) -> dict[str, Any] | str:
    text = json.dumps(about, ensure_ascii=False)
    return about if len(text) <= SUBJECT_CHARACTERS_MAX else text[:SUBJECT_CHARACTERS_MAX]
