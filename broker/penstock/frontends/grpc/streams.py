"""Admission to the message paths: may this caller publish here, consume, read or get from that queue? The listener
keeps the answer and moves messages without asking again, until it is told to forget."""

from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import existing_queue_name, vhost_of
from penstock.frontends.grpc.ports import Asked
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.model.names import QueueId, VhostName, exchange_name
from penstock.v1 import messaging_pb2, streams_pb2

_Request = TypeVar("_Request", bound=Message)

NO_QUEUE = QueueId(0)


@dataclass(frozen=True, slots=True)
class Admission:
    vhost: VhostName
    queue_id: QueueId = NO_QUEUE
    by_key: bool = False
    """Each routing key has to be asked for besides."""


async def admit(context: Context, caller: Caller, asked: Asked) -> Admission:
    """Raises a refusal when the caller may not."""
    if asked.kind == "publish":
        return _admit_publisher(context, caller, asked)
    if asked.kind == "permit":
        return await _admit_exchange(context, caller, asked)
    if asked.kind == "consume":
        opened = _parsed(messaging_pb2.ConsumeRequest, asked).open
        return await _admit_queue(context, caller, opened.vhost, opened.queue)
    if asked.kind == "read":
        return await _admit_reader(context, caller, asked)
    if asked.kind == "get":
        wanted = _parsed(messaging_pb2.GetRequest, asked)
        return await _admit_queue(context, caller, wanted.vhost, wanted.queue)
    assert asked.kind == "settle", asked.kind
    settled = _parsed(messaging_pb2.SettleRequest, asked)
    return await _admit_queue(context, caller, settled.vhost, settled.queue)


def _admit_publisher(context: Context, caller: Caller, asked: Asked) -> Admission:
    """Opening a stream needs no more than a way into the vhost; each exchange is asked for when it is first written."""
    name = vhost_of(_parsed(messaging_pb2.PublishRequest, asked).open.vhost)
    caller.actor(name).require_entry(Thing("vhost", name))
    return Admission(context.vhosts.get(name).name)


async def _admit_exchange(context: Context, caller: Caller, asked: Asked) -> Admission:
    name = vhost_of(asked.vhost)
    vhost = context.vhosts.get(name)
    by_key = await vhost.admit_publish(caller.actor(name), exchange_name(asked.subject))
    return Admission(vhost.name, by_key=by_key)


def keys_of(asked: Asked) -> list[str]:
    """The routing keys that are asked for: each is its length in a byte, then so many bytes."""
    keys, at, payload = [], 0, asked.payload
    while at < len(payload):
        end = at + 1 + payload[at]
        keys.append(payload[at + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
    return keys


def admit_keys(context: Context, caller: Caller, asked: Asked) -> bytes:
    """A byte for each routing key: 1 when the caller may publish with it to the exchange that it was admitted to."""
    name = vhost_of(asked.vhost)
    vhost = context.vhosts.get(name)
    return bytes(vhost.may_publish_keys(caller.actor(name), exchange_name(asked.subject), keys_of(asked)))


async def _admit_queue(context: Context, caller: Caller, vhost_text: str, queue: str) -> Admission:
    name = vhost_of(vhost_text)
    vhost = context.vhosts.get(name)
    queue_id = await vhost.admit_consume(caller.actor(name), existing_queue_name(queue))
    return Admission(vhost.name, queue_id)


async def _admit_reader(context: Context, caller: Caller, asked: Asked) -> Admission:
    opened = _parsed(streams_pb2.ReadRequest, asked).open
    name = vhost_of(opened.vhost)
    vhost = context.vhosts.get(name)
    queue_id = await vhost.streams.admit_read(
        caller.actor(name), existing_queue_name(opened.partition), opened.group, single_active=opened.single_active
    )
    return Admission(vhost.name, queue_id)


def _parsed(kind: type[_Request], asked: Asked) -> _Request:
    try:
        return kind.FromString(asked.payload)
    except DecodeError as error:
        raise InvalidArgumentError(
            Thing("message", kind.DESCRIPTOR.full_name), "cannot be parsed", "send the message of the contract"
        ) from error
