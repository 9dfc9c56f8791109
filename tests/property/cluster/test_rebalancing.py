"""Leaders are spread as evenly as replicas in sync allow, with few moves, and a second time nothing is left to move."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.rebalancing import LedShard, Move, rebalance, spread_replicas

BROKERS = ("a", "b", "c", "d")


def shard(leader: str, *in_sync: str) -> LedShard:
    return LedShard(leader, frozenset({leader, *in_sync}))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[dict[str, LedShard], set[str]]:
    usable = draw(st.sets(st.sampled_from(BROKERS), min_size=1))
    one = st.builds(LedShard, st.sampled_from(BROKERS), st.frozensets(st.sampled_from(BROKERS)))
    led = draw(st.lists(one, max_size=6))
    shards = (LedShard(each.leader, each.in_sync | {each.leader}) for each in led)
    return {f"vhost {number}": each for number, each in enumerate(shards)}, usable


def after(led: dict[str, LedShard], moves: list[Move]) -> dict[str, LedShard]:
    found = dict(led)
    for move in moves:
        assert found[move.vhost].leader == move.broker
        found[move.vhost] = LedShard(move.to, found[move.vhost].in_sync)
    return found


def spread(leaders: list[str], usable: set[str]) -> list[int]:
    """Return how many each usable broker leads, the most first."""
    counts = Counter(leader for leader in leaders if leader in usable)
    return sorted((counts[broker] for broker in usable), reverse=True)


@given(clusters())
def test_no_other_choice_of_leaders_is_more_even(cluster: tuple[dict[str, LedShard], set[str]]) -> None:
    led, usable = cluster

    moved = after(led, rebalance(led, usable))

    able = [sorted(each.in_sync & usable) if each.leader in usable else [each.leader] for each in led.values()]
    best = min((spread(list(leaders), usable) for leaders in product(*able)), default=spread([], usable))
    assert spread([each.leader for each in moved.values()], usable) == best
    assert all(each.leader in each.in_sync for each in moved.values())
    assert rebalance(moved, usable) == []


@given(clusters())
def test_each_virtual_host_moves_at_most_once_and_only_to_a_usable_broker_in_sync(
    cluster: tuple[dict[str, LedShard], set[str]],
) -> None:
    led, usable = cluster

    moves = rebalance(led, usable)

    assert len({move.vhost for move in moves}) == len(moves)
    assert all(move.to in led[move.vhost].in_sync & usable and move.broker in usable for move in moves)


@given(st.lists(st.sampled_from(BROKERS), max_size=12))
def test_where_every_broker_may_lead_everything_only_the_surplus_moves(leaders: list[str]) -> None:
    led = {f"vhost {number}": shard(leader, *BROKERS) for number, leader in enumerate(leaders)}

    moves = rebalance(led, set(BROKERS))

    counts = spread(leaders, set(BROKERS))
    low, more = divmod(len(leaders), len(BROKERS))
    wanted = [low + 1] * more + [low] * (len(BROKERS) - more)
    assert len(moves) == sum(max(0, have - want) for have, want in zip(counts, wanted, strict=True))


def test_leaders_move_over_a_broker_in_between() -> None:
    led = {"one": shard("a", "b"), "two": shard("a", "b"), "three": shard("b", "c")}

    assert rebalance(led, {"a", "b", "c"}) == [Move("three", "b", "c"), Move("one", "a", "b")]


@given(st.lists(st.sets(st.sampled_from(BROKERS), min_size=1), max_size=9), st.sets(st.sampled_from(BROKERS)))
def test_replicas_are_spread_and_those_of_other_brokers_stay(placed: list[set[str]], usable: set[str]) -> None:
    held = {f"vhost {number}": set(brokers) for number, brokers in enumerate(placed)}
    before = {vhost: set(brokers) for vhost, brokers in held.items()}

    moves = spread_replicas(before, usable)

    for move in moves:
        assert held[move.vhost] <= usable
        assert move.to not in held[move.vhost]
        held[move.vhost].remove(move.broker)
        held[move.vhost].add(move.to)
    assert all(len(held[vhost]) == len(before[vhost]) for vhost in held)
    assert spread_replicas(held, usable) == []
    if all(brokers <= usable for brokers in before.values()) and usable:
        counts = Counter(broker for brokers in held.values() for broker in brokers)
        numbers = [counts[broker] for broker in usable]
        assert max(numbers) - min(numbers) <= 1
