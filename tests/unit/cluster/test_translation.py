"""Records of the coordinator as the numbers of the native module, and back."""

import pytest

from penstock.cluster.coordinator import Version
from penstock.cluster.record import Leader, Recovery, ShardRecord
from penstock.cluster.translation import VERSIONS_MAX, Translation, broker_number, shard_id
from penstock.model.errors import StorageError

ONE, TWO = "f" * 32, "0" * 31 + "1"
RECORD = ShardRecord(
    epoch=2**63,
    leader=Leader(broker="mq-0", replica=ONE, boot=2**64 - 1),
    in_sync=(TWO, ONE),
    replicas={ONE: "mq-0", TWO: "mq-1"},
    min_in_sync=2,
)


def test_a_record_is_the_same_after_both_ways() -> None:
    translation = Translation()

    state = translation.state_of(RECORD)

    assert (state.leader, state.leader_boot) == (broker_number("mq-0"), 2**64 - 1)
    assert translation.record_of(state) == RECORD


def test_a_record_keeps_the_recoveries_of_the_one_that_it_replaces() -> None:
    """The machine of a replica does not know them, and its next change would drop them."""
    translation = Translation()
    recovery = Recovery(epoch=7, broker="mq-1", replica=TWO, end=9, by="root", at_ms=5, lost=(ONE,))
    base = translation.version_number(Version("v1"), (recovery,))

    assert translation.record_of(translation.state_of(RECORD), base).recoveries == (recovery,)
    assert translation.record_of(translation.state_of(RECORD), base + 1).recoveries == ()


def test_a_broker_that_no_record_had_is_refused() -> None:
    state = Translation().state_of(RECORD)

    with pytest.raises(StorageError, match="is in no record"):
        Translation().record_of(state)


def test_versions_of_the_last_records_are_known() -> None:
    translation = Translation()
    first, *others = (Version(str(number)) for number in range(VERSIONS_MAX + 1))
    number = translation.version_number(first)
    assert translation.version_of(number) == first

    numbers = {translation.version_number(version) for version in others}

    assert len(numbers) == VERSIONS_MAX
    assert translation.version_of(number) is None
    assert translation.version_of(translation.version_number(others[0])) == others[0]


def test_shards_of_two_clusters_have_other_ids() -> None:
    assert shard_id(bytes(16), "meta") != shard_id(bytes([1] * 16), "meta")
    assert len(shard_id(bytes(16), "meta")) == 16
