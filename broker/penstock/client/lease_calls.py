"""The verbs of leases, without I/O, driven as `steps` says."""

from typing import TypeVar

from google.protobuf.message import Message

from penstock.client.records import Lease, LeaseOwner, QueueLeases, ReservedLease
from penstock.client.steps import Steps, ask
from penstock.v1 import messaging_pb2

__all__ = ["ack_leases", "list_leases", "release_leases", "reserve_lease"]

R = TypeVar("R", bound=Message)

SERVICE = "/penstock.v1.MessagingService/"


def reserve_lease(vhost: str, queue: str, owner: str, lease: int, limits: tuple[int, int]) -> Steps[ReservedLease]:
    """`limits` are the most messages and bytes, 0 for none."""
    messages_max, bytes_max = limits
    request = messaging_pb2.ReserveLeaseRequest(
        vhost=vhost, queue=queue, owner=owner, lease=lease, messages_max=messages_max, bytes_max=bytes_max
    )
    answer = yield from _call("ReserveLease", request, messaging_pb2.ReserveLeaseResponse)
    return ReservedLease(_lease(answer.lease), answer.is_new, answer.ready_count)


def ack_leases(vhost: str, queue: str, owner: str, up_to: int) -> Steps[int]:
    request = messaging_pb2.AckLeasesRequest(vhost=vhost, queue=queue, owner=owner, up_to=up_to)
    answer = yield from _call("AckLeases", request, messaging_pb2.AckLeasesResponse)
    return answer.settled_count


def release_leases(vhost: str, queue: str, owner: str, first: int) -> Steps[int]:
    request = messaging_pb2.ReleaseLeasesRequest(vhost=vhost, queue=queue, owner=owner, **{"from": first})
    answer = yield from _call("ReleaseLeases", request, messaging_pb2.ReleaseLeasesResponse)
    return answer.released_count


def list_leases(vhost: str, queue: str, owner: str | None) -> Steps[QueueLeases]:
    request = messaging_pb2.ListLeasesRequest(vhost=vhost, queue=queue, owner=owner)
    answer = yield from _call("ListLeases", request, messaging_pb2.ListLeasesResponse)
    owners = (LeaseOwner(each.owner, each.acked, tuple(map(_lease, each.leases))) for each in answer.owners)
    return QueueLeases(tuple(owners), answer.ready_count)


def _call(method: str, message: Message, response: type[R]) -> Steps[R]:
    return ask(SERVICE + method, message, response)


def _lease(lease: messaging_pb2.Lease) -> Lease:
    return Lease(lease.lease, lease.message_count, lease.bytes, lease.reserved_at_ms)
