"""The calls about limits of virtual hosts and users, without I/O: `steps` says how a connection drives them."""

from collections.abc import Mapping
from typing import Any

from google.protobuf.message import Message

from penstock.client.admin_calls import call
from penstock.client.records import UserLimits, VhostLimits
from penstock.client.steps import Steps
from penstock.v1 import admin_pb2

__all__ = ["get_limits", "get_user_limits", "set_limits", "set_user_limits"]


def get_limits(vhost: str) -> Steps[VhostLimits]:
    request = admin_pb2.GetVhostLimitsRequest(vhost=vhost)
    answer = yield from call("GetVhostLimits", request, admin_pb2.GetVhostLimitsResponse)
    counts = {"queue_count": answer.queue_count, "connection_count": answer.connection_count}
    none: dict[str, None] = {"queues_max": None, "connections_max": None}
    return VhostLimits(**{**none, **counts, **_numbers(answer.limits)})


def set_limits(vhost: str, limits: Mapping[str, int | None]) -> Steps[None]:
    request = admin_pb2.SetVhostLimitsRequest(vhost=vhost, limits=admin_pb2.VhostLimits(**limits))
    yield from call("SetVhostLimits", request, admin_pb2.SetVhostLimitsResponse)


def get_user_limits(name: str) -> Steps[UserLimits]:
    request = admin_pb2.GetUserLimitsRequest(name=name)
    answer = yield from call("GetUserLimits", request, admin_pb2.GetUserLimitsResponse)
    return UserLimits(connection_count=answer.connection_count, **_numbers(answer.limits))


def set_user_limits(name: str, limits: Mapping[str, int | None]) -> Steps[None]:
    request = admin_pb2.SetUserLimitsRequest(name=name, limits=admin_pb2.UserLimits(**limits))
    yield from call("SetUserLimits", request, admin_pb2.SetUserLimitsResponse)


def _numbers(limits: Message) -> dict[str, Any]:
    """Return the limits that are set."""
    return {field.name: value for field, value in limits.ListFields()}
