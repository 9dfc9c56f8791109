"""Admission to the message paths: from the listener's questions to verbs. The listener keeps the answer."""

from penstock.frontends.grpc.convert import vhost_of
from penstock.native import (
    Admittable,
    DescribeStreams,
    OpenConsume,
    OpenGet,
    OpenPublish,
    OpenRead,
    OpenSettle,
    OpenStage,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    StreamPartition,
)
from penstock.services import Admission, OpenedStage, Principal, Services, StageTarget


async def admit(services: Services, principal: Principal, question: Admittable, *, again: bool) -> Admission:
    """Return what the principal is admitted to. Raises a refusal when it may not."""
    admission, vhost = services.admission, vhost_of(question.vhost)
    match question:
        case OpenPublish():
            return await admission.open_publisher(principal, vhost, again=again)
        case PermitExchange(exchange=exchange):
            return await admission.publish(principal, vhost, exchange)
        case PermitUserId():
            return await admission.publish_as_another(principal, vhost)
        case OpenConsume(queue=queue):
            return await admission.open_consumer(principal, vhost, queue, again=again)
        case OpenGet(queue=queue):
            return await admission.get(principal, vhost, queue, again=again)
        case OpenSettle(queue=queue):
            return await admission.settle(principal, vhost, queue)
        case OpenRead(partition=partition, group=group, single_active=single_active):
            return await admission.open_reader(
                principal, vhost, partition, group=group, single_active=single_active, again=again
            )


async def permit_keys(services: Services, principal: Principal, question: PermitKeys) -> list[bool]:
    """Return for each routing key whether the principal may publish with it to the exchange that it was admitted to."""
    vhost = vhost_of(question.vhost)
    return await services.admission.publish_keys(principal, vhost, question.exchange, question.keys)


async def describe(
    services: Services, principal: Principal, question: DescribeStreams, *, again: bool
) -> tuple[str, list[StreamPartition]]:
    """Return the virtual host and the partitions. The listener asks the log how they stand."""
    vhost, streams = vhost_of(question.vhost), [] if again else question.streams
    if question.waits:
        await services.admission.watch_streams(principal, vhost, again=again)
    return await services.streams.describe_streams(principal, vhost, streams, timestamp_ms=question.at_timestamp_ms)


async def open_stage(services: Services, principal: Principal, question: OpenStage, *, again: bool) -> OpenedStage:
    """Return where the stage is. The listener stages rows and decides batches itself."""
    target = StageTarget(question.stream, question.exchange, question.routing_key)
    return await services.stages.open_stage(principal, vhost_of(question.vhost), question.stage, target, again=again)
