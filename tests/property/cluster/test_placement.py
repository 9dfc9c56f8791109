"""Placements reach an even one by small steps, none of which takes away replicas that are needed."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.meta.placement import (
    REPLICA_COUNTS,
    Brokers,
    MoveLeader,
    RemoveReplica,
    apply_step,
    next_leader,
    next_step,
    place,
)
from penstock.cluster.record import BrokerName

NAMES = [BrokerName(f"mq-{number}") for number in range(7)]
Places = dict[str, tuple[BrokerName, ...]]
brokers = st.builds(Brokers, st.frozensets(st.sampled_from(NAMES), min_size=1), st.sampled_from(REPLICA_COUNTS))


@st.composite
def placements(draw: st.DrawFn) -> Places:
    """Any placement, also on brokers that are gone, and as uneven as can be."""
    held = st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=5)
    return {f"shard.{number}": tuple(sorted(draw(held))) for number in range(draw(st.integers(0, 12)))}


def reached(places: Places, target: Brokers) -> tuple[Places, int]:
    """Take all steps, and return where they end with their number."""
    count = 0
    while (step := next_step(places, target)) is not None:
        after = apply_step(places, step)
        held, now = set(places[step.shard]), set(after[step.shard])
        assert len(held ^ now) == 1
        if isinstance(step, RemoveReplica):
            assert len(now & target.usable) >= target.wanted
        places, count = after, count + 1
        assert count <= 60 * (len(places) + 1), "it goes on for ever"
    return places, count


def spread(names: list[BrokerName], target: Brokers) -> int:
    counts = Counter(dict.fromkeys(target.usable, 0))
    counts.update(names)
    return max(counts.values()) - min(counts.values())


@given(placements(), brokers)
def test_steps_end_with_enough_replicas_on_usable_brokers_evenly(places: Places, target: Brokers) -> None:
    ended, _ = reached(places, target)

    assert ended.keys() == places.keys()
    for held in ended.values():
        assert len(held) == len(set(held)) == target.wanted
        assert set(held) <= target.usable
    assert spread([broker for held in ended.values() for broker in held], target) <= 1


@given(placements(), brokers)
def test_a_placement_that_was_reached_stays(places: Places, target: Brokers) -> None:
    ended, _ = reached(places, target)

    assert reached(ended, target) == (ended, 0)


@given(st.integers(1, 20), st.sampled_from(REPLICA_COUNTS))
def test_new_shards_are_placed_evenly_at_once(count: int, replica_count: int) -> None:
    target, places = Brokers(frozenset(NAMES[:5]), replica_count), Places()
    for number in range(count):
        places[f"shard.{number}"] = place(places, target)

    assert reached(places, target) == (places, 0)


@given(st.integers(1, 20))
def test_a_cluster_grows_from_one_to_three_to_five_and_shrinks_again(count: int) -> None:
    places: Places = {f"shard.{number}": (NAMES[0],) for number in range(count)}

    for size, replicas in ((1, 3), (3, 3), (5, 3), (5, 5), (5, 3), (3, 3), (1, 3)):
        target = Brokers(frozenset(NAMES[:size]), replicas)
        places, _ = reached(places, target)
        assert {len(held) for held in places.values()} == {min(size, replicas)}


@given(st.integers(1, 20))
def test_a_broker_that_is_added_gets_its_share_and_no_other_replica_moves(count: int) -> None:
    before, _ = reached({f"shard.{number}": (NAMES[0],) for number in range(count)}, three())
    after, _ = reached(before, Brokers(frozenset(NAMES[:4]), 3))

    moved = sum(len(set(after[shard]) - set(before[shard])) for shard in before)
    share = sum(NAMES[3] in held for held in after.values())
    assert moved == share
    assert share in (3 * count // 4, -(-3 * count // 4))


@given(st.integers(1, 20))
def test_a_drained_broker_loses_its_replicas_and_only_these_move(count: int) -> None:
    everywhere = Brokers(frozenset(NAMES[:4]), 3)
    before, _ = reached({f"shard.{number}": (NAMES[0],) for number in range(count)}, everywhere)

    after, _ = reached(before, three())

    for shard, held in before.items():
        assert set(after[shard]) >= set(held) - {NAMES[3]}


def three() -> Brokers:
    return Brokers(frozenset(NAMES[:3]), 3)


@given(placements(), brokers, st.data())
def test_leaders_are_spread_over_brokers_that_have_all_replicas(
    places: Places, target: Brokers, data: st.DataObject
) -> None:
    leaders = {shard: data.draw(st.sampled_from(held)) for shard, held in places.items()}
    in_sync = {shard: frozenset(data.draw(st.sets(st.sampled_from(held)))) for shard, held in places.items()}

    count = 0
    while (move := next_leader(places, leaders, in_sync, target)) is not None:
        assert move.broker in in_sync[move.shard]
        assert move.broker in target.usable
        leaders = {**leaders, move.shard: move.broker}
        count += 1
        assert count <= 20 * (len(places) + 1), "it goes on for ever"

    for shard, leader in leaders.items():
        able = in_sync[shard].intersection(places[shard], target.usable)
        assert leader in target.usable or not able
    assert next_leader(places, leaders, in_sync, target) is None


@given(st.integers(1, 20))
def test_leaders_of_shards_that_are_everywhere_are_spread_evenly(count: int) -> None:
    places = {f"shard.{number}": tuple(NAMES[:3]) for number in range(count)}
    leaders = dict.fromkeys(places, NAMES[0])
    in_sync = dict.fromkeys(places, frozenset(NAMES[:3]))

    moves: list[MoveLeader] = []
    while (move := next_leader(places, leaders, in_sync, three())) is not None:
        leaders[move.shard] = move.broker
        moves.append(move)

    assert spread(list(leaders.values()), three()) <= 1
    assert len(moves) == count - -(-count // 3)


@given(placements(), st.frozensets(st.sampled_from(NAMES), min_size=1), st.sets(st.sampled_from(NAMES)))
def test_a_new_shard_has_as_many_replicas_as_without_drained_brokers(
    places: Places, every: frozenset[BrokerName], chosen: set[BrokerName]
) -> None:
    drained = every & frozenset(chosen)
    target = Brokers(every - drained, 3, drained)

    placed = place(places, target)

    assert len(placed) == Brokers(every, 3).wanted
    assert not drained & set(placed) or target.usable <= set(placed)
