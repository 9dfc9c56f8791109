"""The ledger of a soak, fed with the deliveries of a correct and a faulty broker."""

from hypothesis import given
from hypothesis import strategies as st

from bench.soak_ledger import Ledger, body, number_of

SIZE = 24


def told(*deliveries: tuple[int, bool], acknowledged: tuple[int, ...] = (), confirmed: int = 0) -> Ledger:
    """Return a ledger after deliveries of (number, redelivered); numbers in `acknowledged` are acknowledged at once."""
    ledger = Ledger("jobs", confirmed=confirmed)
    for number, redelivered in deliveries:
        ledger.deliver(body(number, SIZE), SIZE, redelivered)
        if number in acknowledged:
            ledger.acknowledge(number)
    return ledger


def complaints(ledger: Ledger) -> tuple[int, ...]:
    return ledger.lost, ledger.duplicates, ledger.misplaced, ledger.corrupt


def test_messages_in_order_and_once_are_no_finding():
    ledger = told((0, False), (1, False), (2, False), acknowledged=(0, 1, 2), confirmed=3)

    assert complaints(ledger) == (0, 0, 0, 0)
    assert (ledger.acknowledged, ledger.waiting, ledger.held) == (3, 0, set())


def test_what_was_given_back_may_come_again_flagged():
    ledger = told((0, False), (1, False), (0, True), acknowledged=(1,), confirmed=2)

    ledger.acknowledge(0)

    assert complaints(ledger) == (0, 0, 0, 0)
    assert ledger.redelivered == 1
    assert ledger.waiting == 0


def test_a_message_that_a_consumer_never_saw_may_be_flagged():
    assert complaints(told((0, True), (1, True), acknowledged=(0, 1), confirmed=2)) == (0, 0, 0, 0)


def test_a_message_that_comes_after_its_acknowledgement_is_a_duplicate():
    assert told((0, False), (0, True), acknowledged=(0,), confirmed=1).duplicates == 1


def test_a_second_delivery_without_the_flag_is_a_duplicate():
    assert told((0, False), (0, False), confirmed=1).duplicates == 1


def test_a_message_that_never_comes_is_lost():
    ledger = told((0, False), (2, False), acknowledged=(0, 2), confirmed=3)

    assert ledger.lost == 1
    assert ledger.missing == {1}


def test_the_last_message_may_be_the_lost_one():
    assert told((0, False), acknowledged=(0,), confirmed=2).lost == 1


def test_a_message_that_comes_late_is_out_of_order_and_not_lost():
    ledger = told((1, False), (0, False), acknowledged=(0, 1), confirmed=2)

    assert complaints(ledger) == (0, 0, 1, 0)


def test_other_bytes_are_corruption():
    ledger = Ledger("jobs")

    assert ledger.deliver(body(1, SIZE)[:-1] + b"x", SIZE, False) is None
    assert ledger.deliver(body(1, SIZE) + bytes(8), SIZE, False) is None
    assert ledger.corrupt == 2


@given(st.integers(0, 2**64 - 1), st.integers(1, 200))
def test_a_number_is_read_from_its_body(number: int, words: int):
    assert number_of(body(number, words * 8), words * 8) == number


@given(st.lists(st.integers(0, 3), max_size=60))
def test_a_queue_that_keeps_its_promises_is_never_complained_of(turns: list[int]):
    """Each turn delivers, acknowledges the oldest or newest held, or gives everything back, as a queue would."""
    ledger, fresh = Ledger("jobs"), 0
    held: list[int] = []
    returned: list[int] = []
    for turn in turns:
        if turn == 0:
            redelivered = bool(returned)
            number = returned.pop(0) if returned else fresh
            fresh += not redelivered
            ledger.confirmed = max(ledger.confirmed, number + 1)
            ledger.deliver(body(number, SIZE), SIZE, redelivered)
            held.append(number)
        elif turn in (1, 2) and held:
            ledger.acknowledge(held.pop(0 if turn == 1 else -1))
        else:
            returned, held = sorted(returned + held), []

    assert complaints(ledger)[1:] == (0, 0, 0)
    assert ledger.waiting == len(held) + len(returned)
    assert ledger.held == {*held, *returned}
