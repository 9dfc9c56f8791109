"""The result of a client against the broker, and the table of all of them.

A case is passed, skipped with a reason, or failed; `cases` is their sum. Reasons are those of expected_skips.toml.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

SKIPPED_SHARE_MAX = 0.1
_HEADINGS = ("client", "cases", "passed", "failed", "skipped")


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of cases; `skipped` has a count for each reason, `failed` the names of cases.

    Cases in `again` passed only when they were run a second time.
    """

    client: str
    cases: int
    passed: int
    skipped: dict[str, int] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        assert self.cases == self.passed + self.skipped_count + len(self.failed), "each case has one result"

    @property
    def skipped_count(self) -> int:
        return sum(self.skipped.values())


def faults_of(outcome: Outcome, documented: str) -> list[str]:
    """Return what is wrong with an outcome, beside the text of docs/amqp.md: an empty list if nothing is."""
    faults = [f"failed: {case}" for case in outcome.failed]
    if outcome.cases == 0 or outcome.passed == 0:
        faults.append("no case has passed")
    faults += [
        f"skipped for a difference that docs/amqp.md does not list: {reason}"
        for reason in outcome.skipped
        if reason not in documented
    ]
    if outcome.skipped_count > SKIPPED_SHARE_MAX * outcome.cases:
        faults.append(f"{outcome.skipped_count} of {outcome.cases} cases are skipped")
    return faults


def table(outcomes: Iterable[Outcome]) -> str:
    """Return the table as text: a row for each client, and below it a line for each reason of its skips."""
    lines = [_row(*_HEADINGS)]
    for each in outcomes:
        lines.append(_row(each.client, each.cases, each.passed, len(each.failed), each.skipped_count))
        lines += [f"    skipped {count}: {reason}" for reason, count in sorted(each.skipped.items())]
        lines += [f"    passed when run again: {case}" for case in each.again]
        lines += [f"    failed: {case}" for case in each.failed]
    return "\n".join(lines)


def _row(client: object, *counts: object) -> str:
    return f"{client!s:<24}" + "".join(f"{count!s:>9}" for count in counts)
