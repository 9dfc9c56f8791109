"""Options of reading a queue: parsing, refusals and their messages."""

import pytest

from penstock.spark.errors import OptionError
from penstock.spark.queue_options import is_queue, parse_queue_options


def test_a_queue_is_named_whatever_the_case() -> None:
    assert is_queue({"QUEUE": "orders"})
    assert not is_queue({"stream": "orders"})

    options = parse_queue_options(
        {"Queue": "orders", "OWNER": "lake", "maxoffsetspertrigger": "7", "minPartitions": "2"}
    )

    assert (options.queue, options.owner, options.lease) == ("orders", "lake", None)
    assert (options.rows.max_offsets, options.rows.min_partitions) == (7, 2)


def test_a_lease_is_a_number_from_1() -> None:
    assert parse_queue_options({"queue": "orders", "owner": "lake", "lease": "7"}).lease == 7
    with pytest.raises(OptionError, match="'lease'"):
        parse_queue_options({"queue": "orders", "owner": "lake", "lease": "0"})


def test_an_owner_has_to_be_given_and_the_text_says_why() -> None:
    with pytest.raises(OptionError, match="the query keeps when it is restarted"):
        parse_queue_options({"queue": "orders"})


@pytest.mark.parametrize(
    "name", ["stream", "startingOffsets", "endingOffsets", "startingTimestamp", "keyIs", "routingKeyIs", "group"]
)
def test_what_belongs_to_streams_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"no option '{name}' to read a queue"):
        parse_queue_options({"queue": "orders", "owner": "lake", name: "1"})
