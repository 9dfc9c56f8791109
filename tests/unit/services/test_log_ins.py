"""Failed log-ins: counted one by one, logged together."""

import structlog

from penstock.services.log_ins import LOG_SECONDS, LogIns


class Timers:
    def __init__(self):
        self.due = []

    def __call__(self, seconds, call):
        assert seconds == LOG_SECONDS
        self.due.append(call)

    def pass_by(self):
        due, self.due = self.due, []
        for call in due:
            call()


def told(lines):
    return [(line["event"], line["count"], line["peer"]) for line in lines]


def test_the_first_failure_is_logged_at_once_and_a_flood_in_one_line_each_while():
    timers = Timers()
    log_ins = LogIns(timers)
    with structlog.testing.capture_logs() as lines:
        for number in range(1_000):
            log_ins.refused("guest", f"10.0.0.1:{number}")
        assert told(lines) == [("log-ins refused", 1, "10.0.0.1:0")]
        timers.pass_by()
        assert told(lines)[1:] == [("log-ins refused", 999, "10.0.0.1:999")]
        timers.pass_by()
        log_ins.refused("guest", "10.0.0.2:1")

    assert told(lines)[2:] == [("log-ins refused", 1, "10.0.0.2:1")]
    assert log_ins.counts() == {"log_ins_refused_total": 1_001, "log_ins_undecided_total": 0}


def test_kinds_have_lines_of_their_own_and_long_names_are_cut():
    log_ins = LogIns(Timers())
    with structlog.testing.capture_logs() as lines:
        log_ins.refused("x" * 10_000, "10.0.0.1:1")
        log_ins.undecided("the server is down", "10.0.0.1:2")

    assert len(lines[0]["user"]) == 255
    assert lines[1]["reason"] == "the server is down"
    assert log_ins.counts()["log_ins_undecided_total"] == 1
