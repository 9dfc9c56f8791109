"""The checker of the message history detects loss: a number that was confirmed and never received."""

from e2e.load import History


def test_what_was_confirmed_and_never_received_is_lost() -> None:
    history = History()
    history.confirmed |= {1, 2, 3}
    history.received |= {1: 1, 3: 2}

    found = history.verdict()
    assert (found["confirmed"], found["lost"], found["twice"], found["unconfirmed_received"]) == (3, 1, 1, 0)


def test_what_was_received_without_a_confirm_is_not_lost() -> None:
    history = History()
    history.confirmed |= {1}
    history.received |= {1: 1, 2: 1}

    found = history.verdict()
    assert (found["lost"], found["unconfirmed_received"]) == (0, 1)
