"""Streams and stages of the message path: from the listener's questions to verbs. The listener keeps the answer."""

from penstock.frontends.native import vhost_of
from penstock.native import DescribeStreams, OpenStage, StreamPartition
from penstock.services import OpenedStage, Principal, Services, StageTarget


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
