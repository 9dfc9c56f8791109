"""How long a close may take, by a clock that the test moves."""

from penstock.client.closing import Grace, silence


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_broker_that_is_there_has_the_whole_time_for_confirms() -> None:
    clock = Clock()
    grace = Grace(30.0, clock)

    clock.now += 10.0

    assert grace.confirms_left(is_lost=False) == 20.0


def test_one_that_is_lost_has_two_seconds_for_everything() -> None:
    clock = Clock()
    grace = Grace(30.0, clock)

    clock.now += 1.5

    assert grace.confirms_left(is_lost=True) == 0.5
    assert grace.hang_up_ms() == 500
    clock.now += 10.0
    assert (grace.confirms_left(is_lost=True), grace.hang_up_ms()) == (0.0, 0)


def test_all_streams_together_have_two_seconds_to_end() -> None:
    clock = Clock()
    grace = Grace(30.0, clock)
    clock.now += 20.0

    found = [grace.hang_up_ms()]
    clock.now += 1.5
    found.append(grace.hang_up_ms())
    clock.now += 1.5
    found.append(grace.hang_up_ms())

    assert found == [2_000, 500, 0]


def test_silence_says_whether_the_connection_is_lost_and_why() -> None:
    code, late, _ = silence(None, 30.0)
    lost_code, lost, _ = silence("Connection refused", 30.0)

    assert (code, lost_code) == (4, 14)
    assert late == "no confirm within 30 s; the message may have been stored"
    assert lost == f"the connection to the broker is lost (Connection refused); {late}"
