"""Limits of a vhost: excess is refused, existing things stay, and limits survive a restart."""

import pytest

from penstock.metadata import entries_of, restore
from penstock.metadata.commands import DeclareStream, SetLimits
from penstock.model.errors import InvalidArgumentError, LimitReachedError
from penstock.model.limits import Holder, Limits, read_limits
from penstock.model.names import VhostName
from support.machine import Machine


@pytest.fixture
def machine():
    return Machine()


def test_one_queue_too_many_is_refused_and_one_that_is_there_is_not(machine):
    machine.decide(SetLimits(Limits(queues_max=2)))
    machine.queue("a")
    machine.queue("b")

    with pytest.raises(LimitReachedError, match=r"queue 'c' in vhost '/' would be one more.*at most 2"):
        machine.queue("c")
    assert not machine.queue("a").answer.is_new
    machine.delete_queue("a")
    machine.queue("c")


def test_a_stream_with_too_many_partitions_is_refused_whole(machine):
    machine.decide(SetLimits(Limits(queues_max=3)))
    machine.queue("a")

    with pytest.raises(LimitReachedError, match="3 queues, more than"):
        machine.decide(DeclareStream("s", 3))
    assert not machine.has_queue("s-0")
    machine.decide(DeclareStream("s", 2))
    assert machine.has_queue("s-1")


def test_a_limit_below_what_is_there_takes_nothing_away(machine):
    machine.queue("a")
    machine.queue("b")
    machine.decide(SetLimits(Limits(queues_max=0)))

    assert machine.has_queue("b")
    with pytest.raises(LimitReachedError):
        machine.queue("c")


def test_limits_are_there_again_after_a_start(machine):
    machine.queue("a")
    machine.decide(SetLimits(Limits(1, 7)))

    assert restore(VhostName("/"), entries_of(machine.state), 1).limits == Limits(1, 7)
    assert machine.decide(SetLimits(Limits(1, 7))).entries == []


def test_limits_are_read_as_others_write_them():
    assert read_limits(Holder.VHOST, "/", {"max-queues": 3, "max-connections": -1}) == Limits(3, None)
    assert Limits(3, None).written() == {"max-queues": 3}
    assert read_limits(Holder.VHOST, "/", {}) == Limits()


@pytest.mark.parametrize(
    "fields", [{"max-channels": 1}, {"max-queues": "3"}, {"max-queues": True}, {"max-queues": 2**40}]
)
def test_what_is_no_limit_is_refused(fields):
    with pytest.raises(InvalidArgumentError):
        read_limits(Holder.VHOST, "/", fields)
