"""The verbs about limits of virtual hosts, as the others of `admin` are: generators without I/O."""

from penstock.client.admin import Steps, call
from penstock.client.records import VhostLimits
from penstock.v1 import admin_pb2

__all__ = ["get_limits", "set_limits"]


def get_limits(vhost: str) -> Steps[VhostLimits]:
    request = admin_pb2.GetVhostLimitsRequest(vhost=vhost)
    answer = yield from call("GetVhostLimits", request, admin_pb2.GetVhostLimitsResponse)
    limits = answer.limits
    return VhostLimits(
        limits.queues_max if limits.HasField("queues_max") else None,
        limits.connections_max if limits.HasField("connections_max") else None,
        answer.queue_count,
        answer.connection_count,
    )


def set_limits(vhost: str, queues_max: int | None, connections_max: int | None) -> Steps[None]:
    limits = admin_pb2.VhostLimits(queues_max=queues_max, connections_max=connections_max)
    request = admin_pb2.SetVhostLimitsRequest(vhost=vhost, limits=limits)
    yield from call("SetVhostLimits", request, admin_pb2.SetVhostLimitsResponse)
