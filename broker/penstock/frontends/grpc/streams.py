"""Admission to the message paths: from what the listener asks to verbs. The listener keeps the answer."""

from penstock.frontends.grpc.calls import parsed
from penstock.frontends.grpc.convert import vhost_of
from penstock.frontends.grpc.ports import Asked
from penstock.frontends.grpc.staging_calls import open_stage
from penstock.services import Admission, Principal, Services
from penstock.v1 import messaging_pb2 as messaging
from penstock.v1 import staging_pb2 as staging
from penstock.v1 import streams_pb2 as streams


async def admit(services: Services, principal: Principal, asked: Asked) -> Admission:
    """Return what the principal is admitted to. Raises a refusal when it may not."""
    admission, again = services.admission, asked.again
    match asked.kind:
        case "publish":
            opened = parsed(messaging.PublishRequest, asked.payload).open
            return await admission.open_publisher(principal, vhost_of(opened.vhost), again=again)
        case "permit":
            return await admission.publish(principal, vhost_of(asked.vhost), asked.subject)
        case "consume":
            wanted = parsed(messaging.ConsumeRequest, asked.payload).open
            return await admission.open_consumer(principal, vhost_of(wanted.vhost), wanted.queue, again=again)
        case "read":
            return await _admit_reader(services, principal, asked)
        case "get":
            got = parsed(messaging.GetRequest, asked.payload)
            return await admission.get(principal, vhost_of(got.vhost), got.queue, again=again)
    assert asked.kind == "settle", asked.kind
    settled = parsed(messaging.SettleRequest, asked.payload)
    return await admission.settle(principal, vhost_of(settled.vhost), settled.queue)


async def _admit_reader(services: Services, principal: Principal, asked: Asked) -> Admission:
    opened = parsed(streams.ReadRequest, asked.payload).open
    return await services.admission.open_reader(
        principal,
        vhost_of(opened.vhost),
        opened.partition,
        group=opened.group,
        single_active=opened.single_active,
        again=asked.again,
    )


def keys_of(asked: Asked) -> list[str]:
    """Return the routing keys that are asked for: each is its length in a byte, then so many bytes."""
    keys, at, payload = [], 0, asked.payload
    while at < len(payload):
        end = at + 1 + payload[at]
        keys.append(payload[at + 1 : end].decode("utf-8", "surrogateescape"))
        at = end
    return keys


async def admit_keys(services: Services, principal: Principal, asked: Asked) -> bytes:
    """Return a byte for each routing key: 1 when the principal may publish with it to the exchange that it was admitted
    to."""
    place = vhost_of(asked.vhost)
    return bytes(await services.admission.publish_keys(principal, place, asked.subject, keys_of(asked)))


async def admit_stage(services: Services, principal: Principal, asked: Asked) -> bytes:
    """Return a serialised StagePlace."""
    wanted = parsed(staging.StageTarget, asked.payload)
    return (await open_stage(services, principal, wanted, again=asked.again)).SerializeToString()
