"""The log of what administrators did and tried to do: who, from where, which method, about what, and how it ended. Each
field is named here, so that a password or a token cannot slip in with a new one."""

from typing import Any, Final

from google.protobuf.message import Message

from penstock.frontends.grpc.caller import Caller
from penstock.kit.logging import logger

# Method -> the fields of its request that say what it was about. Only these methods are told.
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
    "SetPolicy": ("vhost", "policy.name", "policy.pattern", "operator"),
    "ClearPolicy": ("vhost", "name", "operator"),
    "ExportDefinitions": ("vhost",),
    "ImportDefinitions": ("vhost",),
    "Backup": ("directory",),
    "DeleteProducer": ("vhost", "producer"),
    "ReleaseLeases": ("vhost", "queue", "owner", "from"),
}
_log = logger("audit")


def tell(method: str, caller: Caller, peer: str, request: Message, refusal: str = "") -> None:
    """`refusal` is why it was not done."""
    fields = AUDITED.get(method)
    if fields is None:
        return
    about = {name.rpartition(".")[2]: _value(request, name) for name in fields}
    told = {"user": caller.user.name, "peer": peer, "connection": int(caller.connection), "about": about}
    if refusal:
        _log.warning(method, outcome="refused", refusal=refusal, **told)
    else:
        _log.info(method, outcome="done", **told)


def _value(request: Any, name: str) -> Any:
    for part in name.split("."):
        request = getattr(request, part)
    if isinstance(request, Message):
        return {field.name: value for field, value in request.ListFields()}
    return request if isinstance(request, str | bool | int) else list(request)
