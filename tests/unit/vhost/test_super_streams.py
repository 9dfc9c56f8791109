"""Super streams of RabbitMQ's definitions."""

import asyncio
import json
from typing import Any

import pytest

from penstock.metadata.commands import DeclareStream
from penstock.model.errors import InvalidArgumentError
from penstock.model.names import VhostName
from penstock.vhost.definitions import export_vhost
from penstock.vhost.streams import StreamStatus
from penstock.vhost.vhosts import Vhosts
from support.definitions_users_fake import FakeUsers, import_definitions
from support.vhost_fakes import FakeStorage, Tasks, rights

BLUE = VhostName("blue")
Document = dict[str, list[dict[str, Any]]]


def document(partitions: dict[str, str]) -> Document:
    """Return a super stream `clicks` as RabbitMQ exports it, with keys by partition."""
    exchange = {"name": "clicks", "type": "direct", "durable": True, "arguments": {"x-super-stream": True}}
    arguments = {"x-queue-type": "stream", "x-max-age": "7D", "x-initial-cluster-size": 3}
    return {
        "exchanges": [{**exchange, "auto_delete": False, "internal": False}],
        "queues": [
            {"name": name, "type": "stream", "durable": True, "auto_delete": False, "arguments": arguments}
            for name in partitions
        ],
        "bindings": [
            {
                "source": "clicks",
                "destination": name,
                "destination_type": "queue",
                "routing_key": key,
                "arguments": {"x-stream-partition-order": order},
            }
            for order, (name, key) in enumerate(partitions.items())
        ],
    }


def imported(wanted: Document) -> tuple[list[StreamStatus], bytes, bytes]:
    """Return the streams afterwards; and an export of it, and of a stream declared the same way."""

    async def run() -> tuple[list[StreamStatus], bytes, bytes]:
        tasks = Tasks()
        vhosts = [Vhosts(FakeStorage(), tasks.spawn, lambda: "0123456789abcdefghijkl") for _ in range(2)]
        for one in vhosts:
            await one.make(BLUE)
        theirs, ours = (one.get(BLUE) for one in vhosts)
        await import_definitions(vhosts[0], FakeUsers(), rights(), json.dumps(wanted).encode(), BLUE)
        await ours.streams.declare(
            rights(), DeclareStream("clicks", 3, {"x-max-age": "7D", "x-initial-cluster-size": 3})
        )
        found = list(await theirs.streams.statuses(rights()))
        exports = [await export_vhost(one, rights(), "1.0") for one in (theirs, ours)]
        await tasks.end()
        return found, exports[0], exports[1]

    return asyncio.run(run())


def test_one_that_is_laid_out_as_ours_is_a_stream_that_was_declared_here() -> None:
    (status,), theirs, ours = imported(document({"clicks-0": "0", "clicks-1": "1", "clicks-2": "2"}))

    assert [partition.name for partition in status.partitions] == ["clicks-0", "clicks-1", "clicks-2"]
    assert _sorted(theirs) == _sorted(ours)


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ({"clicks-amer": "amer", "clicks-emea": "emea"}, "other partitions than 'clicks-0' to 'clicks-1'"),
        ({"clicks-0": "1", "clicks-1": "0"}, "other partitions"),
        ({"clicks-1": "1", "clicks-2": "2"}, "other partitions"),
        ({"other": "0"}, "other partitions"),
        ({}, "no partitions"),
    ],
)
def test_one_that_is_laid_out_otherwise_is_refused_with_the_reason(partitions: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidArgumentError, match=problem):
        imported(document(partitions))


def test_a_partition_that_is_no_stream_is_named() -> None:
    wanted = document({"clicks-0": "0", "clicks-1": "1"})
    wanted["queues"][1]["type"] = "classic"
    wanted["queues"][1]["arguments"] = {}

    with pytest.raises(InvalidArgumentError, match="'clicks-1' without a stream of that name"):
        imported(wanted)


def test_other_exchanges_and_bindings_stay_as_they_are() -> None:
    wanted = document({"clicks-0": "0", "clicks-1": "1", "clicks-2": "2"})
    wanted["exchanges"].append({"name": "plain", "type": "direct"})
    order = {"x-stream-partition-order": 1}
    wanted["bindings"].append({"source": "plain", "destination": "clicks-0", "routing_key": "k", "arguments": order})

    _, theirs, _ = imported(wanted)

    bindings = json.loads(theirs)["bindings"]
    assert [binding["arguments"] for binding in bindings if binding["source"] == "plain"] == [order]


def _sorted(exported: bytes) -> dict[str, Any]:
    read = json.loads(exported)
    return {key: sorted(map(str, value)) if isinstance(value, list) else value for key, value in read.items()}
