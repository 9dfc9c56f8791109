"""The watermark and its ranges against a plain set of numbers; numbers across connections against a plain list."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.numbering import Numbering
from penstock.client.outcomes import Outcomes
from penstock.client.pure_publisher import PureOutcome

LAST = 60


@given(st.permutations(range(1, LAST + 1)), st.lists(st.integers(1, 8), min_size=LAST, max_size=LAST), st.data())
def test_settled_numbers_are_those_that_had_an_outcome(
    order: list[int], lengths: list[int], data: st.DataObject
) -> None:
    outcomes = Outcomes()
    model: set[int] = set()
    failed: set[int] = set()

    for first, length in zip(order, lengths, strict=True):
        last = first
        while last < LAST and last - first + 1 < length and last + 1 not in model and first not in model:
            last += 1
        if first in model:
            continue
        code = data.draw(st.sampled_from([0, 0, 5]))
        outcomes.apply(PureOutcome(first, last, code, "why"))
        model |= set(range(first, last + 1))
        failed |= set(range(first, last + 1)) if code else set()
        outcomes.check_invariants()
        low = data.draw(st.integers(1, LAST))
        high = data.draw(st.integers(low, LAST))
        assert outcomes.is_settled(low, high) == model.issuperset(range(low, high + 1))

    assert outcomes.settled_through == LAST
    assert len(outcomes.take_failures(1, LAST)) == len(failed)
    assert outcomes.take_failures(1, LAST) == []


@given(st.lists(st.integers(1, 200), unique=True, min_size=1).map(sorted), st.data())
def test_a_streams_numbers_stand_for_what_was_sent(sent: list[int], data: st.DataObject) -> None:
    numbering = Numbering()
    for number in sent:
        numbering.send(number)

    first = data.draw(st.integers(1, len(sent)))
    last = data.draw(st.integers(first, len(sent) + 5))

    found = [number for low, high in numbering.translate(first, last) for number in range(low, high + 1)]
    assert found == sent[first - 1 : last]
