"""The broker that is to lead all shards of a virtual host, for any records."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.gathering import in_sync_in_all, leader_of_all
from penstock.cluster.record import Leader, ShardRecord

BROKERS = ("mq-0", "mq-1", "mq-2", "mq-3")


def replica_of(shard: int, broker: str) -> str:
    """Return a replica; each shard has its own of a broker."""
    return f"{(shard * 7 + 3) % 64:016x}{BROKERS.index(broker):016x}"


def record(shard: int, leader: str, in_sync: frozenset[str]) -> ShardRecord:
    return ShardRecord(
        epoch=7,
        leader=Leader(broker=leader, replica=replica_of(shard, leader), boot=1),
        in_sync=tuple(sorted(replica_of(shard, broker) for broker in in_sync)),
        replicas={replica_of(shard, broker): broker for broker in BROKERS},
        min_in_sync=1,
    )


@st.composite
def records(draw: st.DrawFn) -> list[ShardRecord]:
    """Draw the records of some shards, whose leaders are in sync."""
    found = []
    for shard in range(draw(st.integers(1, 5))):
        leader = draw(st.sampled_from(BROKERS))
        found.append(record(shard, leader, draw(st.frozensets(st.sampled_from(BROKERS))) | {leader}))
    return found


def led_by(records: list[ShardRecord], shard: int, broker: str) -> list[ShardRecord]:
    """Return the records after a broker has taken over one shard."""
    leader = Leader(broker=broker, replica=replica_of(shard, broker), boot=2)
    taken = records[shard].model_copy(update={"leader": leader, "epoch": 8})
    return [*records[:shard], taken, *records[shard + 1 :]]


avoided_brokers = st.frozensets(st.sampled_from(BROKERS))


@given(records(), avoided_brokers)
def test_it_is_in_sync_in_every_shard_and_not_avoided_where_another_one_is(
    records: list[ShardRecord], avoided: frozenset[str]
) -> None:
    able, chosen = in_sync_in_all(records), leader_of_all(records, avoided)

    assert (chosen is None) == (not able)
    assert chosen is None or chosen in able
    assert chosen not in avoided or able <= avoided


@given(records(), avoided_brokers, st.permutations(range(5)))
def test_the_choice_stays_while_shards_are_handed_over_to_it(
    records: list[ShardRecord], avoided: frozenset[str], order: list[int]
) -> None:
    chosen = leader_of_all(records, avoided)
    if chosen is None:
        return

    for shard in (each for each in order if each < len(records)):
        records = led_by(records, shard, chosen)
        assert leader_of_all(records, avoided) == chosen


@given(records())
def test_the_leader_of_the_first_shard_leads_the_others_if_it_can(records: list[ShardRecord]) -> None:
    first = records[0].leader.broker

    assert (leader_of_all(records) == first) == (first in in_sync_in_all(records))


def test_the_broker_that_leads_most_is_next() -> None:
    everyone = frozenset(BROKERS)
    first = record(0, "mq-0", everyone)
    others = [record(shard, leader, everyone - {"mq-0"}) for shard, leader in ((1, "mq-1"), (2, "mq-3"), (3, "mq-3"))]

    assert leader_of_all([first, *others]) == "mq-3"
    assert leader_of_all([first, *others], {"mq-3"}) == "mq-1"
