"""Options of reading a queue, fewer than those of a stream.

A queue has no start or end to choose, and a message that a filter skipped would be lost from it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.spark.errors import OptionError
from penstock.spark.options import (
    POLL_TIMEOUT_MS,
    POLL_TIMEOUT_MS_MAX,
    Given,
    ReadOptions,
    boolean,
    bounded,
    names,
    positive,
    taken_decoding,
    taken_retry_seconds,
    taken_uri,
    text,
)
from penstock.spark.shares import SPLITS_MAX

__all__ = ["QueueOptions", "is_queue", "parse_queue_options"]


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Options of a queue; `rows` are those shared with streams, `lease` is for a batch only."""

    queue: str
    owner: str
    lease: int | None
    rows: ReadOptions


def is_queue(options: Mapping[str, str]) -> bool:
    return any(name.lower() == "queue" for name in options)


def parse_queue_options(options: Mapping[str, str]) -> QueueOptions:
    """Parse the options of a queue; raise OptionError."""
    given = Given(options)
    queue = given.take("queue", text, "")
    owner = given.take("owner", text, "")
    lease = given.take("lease", positive, None)
    rows = ReadOptions(
        stream=queue,
        uri=taken_uri(given),
        starting=None,
        ending=None,
        max_offsets=given.take("maxOffsetsPerTrigger", positive, None),
        max_bytes=given.take("maxBytesPerTrigger", positive, None),
        min_partitions=given.take("minPartitions", bounded(1, SPLITS_MAX), 1),
        fail_on_data_loss=True,
        with_headers=given.take("includeHeaders", boolean, False),
        columns=given.take("columns", names, ()),
        key=None,
        routing_key=None,
        poll_timeout_ms=given.take("pollTimeoutMs", bounded(0, POLL_TIMEOUT_MS_MAX), POLL_TIMEOUT_MS),
        group="",
        decoding=taken_decoding(given),
        retry_seconds=taken_retry_seconds(given),
    )
    given.refuse_rest("read a queue of")
    if not owner:
        raise OptionError(
            "reading a queue needs an owner: a name that the query keeps when it is restarted, and that no other query "
            "uses: .option('owner', 'orders-to-lake')"
        )
    return QueueOptions(queue, owner, lease, rows)
