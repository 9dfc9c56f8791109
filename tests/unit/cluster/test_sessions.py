"""Sessions end by the observer's own clock."""

from penstock.cluster.sessions import SESSION_S, Sessions


def test_a_session_ends_when_its_beat_stays_the_same_for_the_whole_time() -> None:
    sessions = Sessions({}).observe({"mq-0": "a", "mq-1": "a"}, 100.0)
    sessions = sessions.observe({"mq-0": "b", "mq-1": "a"}, 100.0 + SESSION_S - 1)

    assert sessions.ended(100.0 + SESSION_S - 1) == frozenset()
    assert sessions.ended(100.0 + SESSION_S) == {"mq-1"}


def test_a_broker_that_beats_again_is_alive() -> None:
    sessions = Sessions({}).observe({"mq-0": "a"}, 0.0)
    assert sessions.ended(SESSION_S) == {"mq-0"}

    assert sessions.observe({"mq-0": "b"}, SESSION_S).ended(SESSION_S) == frozenset()


def test_a_broker_whose_beat_is_gone_is_not_alive_for_that() -> None:
    sessions = Sessions({}).observe({"mq-0": "a"}, 0.0).observe({}, SESSION_S)

    assert sessions.ended(SESSION_S) == {"mq-0"}


def test_a_time_in_which_no_beat_could_be_seen_ends_no_session() -> None:
    sessions = Sessions({}).observe({"mq-0": "a"}, 0.0).anew(SESSION_S)

    assert sessions.observe({"mq-0": "a"}, SESSION_S).ended(SESSION_S) == frozenset()
    assert sessions.observe({"mq-0": "a"}, 2 * SESSION_S).ended(2 * SESSION_S) == {"mq-0"}
