"""Staged publishing: rows wait in a stage until one call publishes those of a batch, completely and once.

It is for a program that repeats parts of a batch, but not always with the same rows.

The calls are without I/O, driven as `steps` says.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from google.protobuf.message import Message

from penstock.client.properties import Properties, encode_properties
from penstock.client.steps import Steps, ask
from penstock.client.stream import KeyedBody, key_bytes
from penstock.client.values import Value
from penstock.v1 import staging_pb2

__all__ = [
    "Attempt",
    "PublishedBatch",
    "StageInfo",
    "Target",
    "delete_stage",
    "discard_staged",
    "encoded",
    "keyed",
    "list_stages",
    "publish_staged",
    "stage_rows",
    "target_of",
]

R = TypeVar("R", bound=Message)

SERVICE = "/penstock.v1.StagingService/"
CALL_BYTES = 1 << 20
"""About so much goes with a call."""
MESSAGE_BYTES_ABOUT = 64


@dataclass(frozen=True, slots=True)
class Attempt:
    """Rows that were staged together: all of them are published, or none."""

    attempt: int
    count: int


@dataclass(frozen=True, slots=True)
class PublishedBatch:
    """The result of publishing a batch.

    `was_decided`: an earlier call published this batch, and the attempts of this one were ignored. The others count the
    stored messages of this call, and the ones that no queue accepted.
    """

    was_decided: bool
    stored: int
    unroutable: int


@dataclass(frozen=True, slots=True)
class StageInfo:
    """`last_batch` is the last that was decided, `is_copying` whether its rows are still on their way."""

    name: str
    exchange: str
    routing_key: str
    row_count: int
    bytes: int
    last_batch: int | None
    is_copying: bool
    last_staged_ms: int


@dataclass(frozen=True, slots=True)
class Target:
    """A stage and where it publishes to: a stream, or an exchange and the routing key of rows without one."""

    vhost: str
    stage: str
    stream: str = ""
    exchange: str = ""
    routing_key: str = ""

    def message(self) -> staging_pb2.StageTarget:
        return staging_pb2.StageTarget(
            vhost=self.vhost,
            stage=self.stage,
            stream=self.stream,
            exchange=self.exchange,
            routing_key=self.routing_key,
        )


def stage_rows(target: Target, batch: int, rows: Iterable[KeyedBody], properties: bytes | None) -> Steps[Attempt]:
    attempt = count = 0
    for request in _requests(target, batch, rows, properties):
        request.attempt = attempt
        answer = yield from _call("Stage", request, staging_pb2.StageResponse)
        attempt, count = answer.attempt, count + answer.count
    return Attempt(attempt, count)


def publish_staged(target: Target, batch: int, attempts: Sequence[Attempt]) -> Steps[PublishedBatch]:
    request = staging_pb2.PublishStagedRequest(target=target.message(), batch=batch, attempts=_attempts(attempts))
    answer = yield from _call("PublishStaged", request, staging_pb2.PublishStagedResponse)
    return PublishedBatch(answer.was_decided, answer.stored, answer.unroutable)


def discard_staged(target: Target, batch: int, attempts: Sequence[Attempt]) -> Steps[int]:
    request = staging_pb2.DiscardStagedRequest(target=target.message(), batch=batch, attempts=_attempts(attempts))
    answer = yield from _call("DiscardStaged", request, staging_pb2.DiscardStagedResponse)
    return answer.dropped


def list_stages(vhost: str) -> Steps[list[StageInfo]]:
    request = staging_pb2.ListStagesRequest(vhost=vhost)
    answer = yield from _call("ListStages", request, staging_pb2.ListStagesResponse)
    return [
        StageInfo(
            each.name,
            each.exchange,
            each.routing_key,
            each.row_count,
            each.bytes,
            each.last_batch if each.HasField("last_batch") else None,
            each.copying,
            each.last_staged_ms,
        )
        for each in answer.stages
    ]


def delete_stage(vhost: str, name: str, *, ended: bool) -> Steps[int]:
    request = staging_pb2.DeleteStageRequest(vhost=vhost, name=name, ended=ended)
    answer = yield from _call("DeleteStage", request, staging_pb2.DeleteStageResponse)
    return answer.dropped_count


def target_of(vhost: str, name: str, stream: str, exchange: str | None, routing_key: str) -> Target:
    """Return the target. Raises ValueError unless it is either a stream or an exchange."""
    if bool(stream) == (exchange is not None):
        raise ValueError("a stage publishes either to a stream or to an exchange; set one of them")
    if stream and routing_key:
        raise ValueError("a routing key belongs to an exchange; rows go to a stream's partitions by their keys")
    return Target(vhost, name, stream, exchange or "", routing_key)


def keyed(rows: Iterable[bytes | KeyedBody]) -> Iterable[tuple[bytes | None, bytes]]:
    for row in rows:
        yield (None, row) if isinstance(row, bytes) else (key_bytes(row[0]), row[1])


def _requests(
    target: Target, batch: int, rows: Iterable[tuple[bytes | str | None, bytes]], properties: bytes | None
) -> Iterable[staging_pb2.StageRequest]:
    """At least one, so that an attempt without rows has a number too."""
    request, size, is_first = staging_pb2.StageRequest(target=target.message(), batch=batch), 0, True
    for key, body in rows:
        if size >= CALL_BYTES:
            yield request
            request, size, is_first = staging_pb2.StageRequest(target=target.message(), batch=batch), 0, False
        message = request.rows.messages.add(body=body, key=key_bytes(key))
        if properties is not None:
            message.properties.ParseFromString(properties)
        size += len(body) + MESSAGE_BYTES_ABOUT
    if size or is_first:
        yield request


def _attempts(attempts: Sequence[Attempt]) -> list[staging_pb2.StagedAttempt]:
    return [staging_pb2.StagedAttempt(attempt=one.attempt, count=one.count) for one in attempts if one.count]


def encoded(properties: Properties | None, headers: Mapping[str, Value] | None) -> bytes | None:
    return encode_properties(properties, headers) if properties is not None or headers else None


def _call(method: str, message: Message, response: type[R]) -> Steps[R]:
    return ask(SERVICE + method, message, response)
