"""Faults drawn from seeds, and the directions that they cut."""

from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.faults import NETWORK_KINDS, Fault, Kind, Pace, draw, kinds_of

BROKERS = ("mq-0", "mq-1", "mq-2")


def fault(kind: Kind, *picks: float) -> Fault:
    first, second = picks or (0.0, 0.0)
    return Fault(kind, 0, (first, second), 1.0, 1.0, waits=False)


def test_the_same_seed_draws_the_same_faults():
    first, second = (list(islice(draw(Random(7), list(Kind), 3), 50)) for _ in range(2))

    assert first == second
    assert {each.kind for each in first} == set(Kind)
    assert {each.vhost for each in first} == {0, 1, 2}


@given(seed=st.integers(0, 2**32), leader=st.sampled_from(BROKERS))
def test_a_fault_hits_brokers_that_there_are(seed: int, leader: str):
    for each in islice(draw(Random(seed), list(Kind), 3), len(Kind)):
        target = each.target(leader, BROKERS)
        cuts = set(each.cuts(target, BROKERS))

        assert target in BROKERS
        assert target in each.hits(target, BROKERS) <= set(BROKERS) or each.kind == Kind.CALM
        assert bool(cuts) == (each.kind in NETWORK_KINDS)
        assert all(source != to and {source, to} <= set(BROKERS) for source, to in cuts)


def test_a_leader_or_a_follower_is_killed():
    assert fault(Kind.KILL_LEADER).target("mq-1", BROKERS) == "mq-1"
    assert {fault(Kind.KILL_FOLLOWER, at, 0.0).target("mq-1", BROKERS) for at in (0.0, 0.9)} == {"mq-0", "mq-2"}


@pytest.mark.parametrize(
    ("kind", "cuts"),
    [
        (Kind.HALVES, {("mq-0", "mq-1"), ("mq-1", "mq-0"), ("mq-0", "mq-2"), ("mq-2", "mq-0")}),
        (Kind.ONE_WAY, {("mq-0", "mq-1")}),
        (Kind.DEAF, {("mq-1", "mq-0"), ("mq-2", "mq-0")}),
        (Kind.BRIDGE, {("mq-0", "mq-1"), ("mq-1", "mq-0")}),
        (Kind.RING, {("mq-1", "mq-0"), ("mq-2", "mq-1"), ("mq-0", "mq-2")}),
        (Kind.NO_MAJORITY, {(one, two) for one in BROKERS for two in BROKERS if one != two}),
    ],
)
def test_each_partition_cuts_its_directions(kind: Kind, cuts: set[tuple[str, str]]):
    assert set(fault(kind).cuts("mq-0", BROKERS)) == cuts


def test_kinds_are_chosen_by_name():
    assert kinds_of("pause, kill-leader") == [Kind.PAUSE, Kind.KILL_LEADER]
    assert set(Kind) - set(kinds_of("")) == {Kind.CORRUPT, Kind.TRUNCATE}
    with pytest.raises(ValueError, match="nothing"):
        kinds_of("nothing")


@given(seed=st.integers(0, 2**32), leader=st.sampled_from(BROKERS))
def test_with_a_pace_each_fault_hits_the_leader_for_the_given_time(seed: int, leader: str):
    kinds = [Kind.KILL_LEADER, Kind.PAUSE, Kind.HALVES]

    for each in islice(draw(Random(seed), kinds, 3, Pace((6.0, 7.0))), 6):
        assert each.target(leader, BROKERS) == leader
        assert 6.0 <= each.seconds <= 7.0
        assert each.waits
