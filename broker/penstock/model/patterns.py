"""Regular expressions that people give: bounded in length, and in what matching one against a name can cost. Python's
matcher goes back over every repeat it has taken, so a repeat within a repeat takes time by two to the power of the
name's length, and repeats side by side by the length to the power of their number: three over the longest name take
some 10 ms, four take seconds. Looking for a pattern anywhere in a name is one repeat more."""

import re
from re import _constants, _parser  # type: ignore[attr-defined] # what `re` itself makes of a pattern
from typing import Any, Final

from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

PATTERN_LENGTH_MAX: Final = 1_024  # longer ones are refused: nobody can read them, and compiling them costs
REPEATS_MAX: Final = 3
_REPEATS: Final = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_SMALL_REPEAT: Final = 16
"""A repeat of at most so many is no danger by itself."""


def compile_pattern(kind: str, source: str, *, is_searched: bool = False) -> re.Pattern[str]:
    """`kind` says in messages which pattern it is; `is_searched` that it may match anywhere in a name, not the whole of
    it. Raises InvalidArgumentError and TooLargeError."""
    if len(source) > PATTERN_LENGTH_MAX:
        raise TooLargeError(
            Thing("pattern", kind), f"is {len(source)} characters long", size=len(source), size_max=PATTERN_LENGTH_MAX
        )
    try:
        compiled = re.compile(source)
        parsed = _parser.parse(source)
        repeat_count = _repeats_of_search(parsed) if is_searched else _repeats(parsed)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidArgumentError(
            Thing("pattern", source), f"is no regular expression: {error}", "mend it", field=kind
        ) from error
    if repeat_count > REPEATS_MAX:
        raise InvalidArgumentError(
            Thing("pattern", source),
            f"can take too long: it has a repeat within a repeat, or more than {REPEATS_MAX} one after another",
            "write it with fewer `*`, `+` and `{n,}`",
            field=kind,
        )
    return compiled


def _repeats(parsed: Any) -> int:
    """The most unbounded repeats on one way through; nested ones count as too many."""
    return sum(_repeats_of(operation, argument) for operation, argument in parsed)


def _repeats_of_search(parsed: Any) -> int:
    """Beginning anywhere is a repeat in front; one at the end that may take nothing is never gone back over."""
    operations = list(parsed)
    if operations and operations[-1][0] in _REPEATS and operations[-1][1][0] == 0 and len(operations[-1][1][2]) == 1:
        last_operation, _ = operations[-1][1][2][0]
        if last_operation is _constants.ANY:
            operations.pop()
    is_anchored = bool(operations) and operations[0] == (_constants.AT, _constants.AT_BEGINNING)
    return _repeats(operations) + (0 if is_anchored else 1)


def _repeats_of(operation: Any, argument: Any) -> int:
    if operation in _REPEATS:
        _, most, inner = argument
        within = _repeats(inner)
        if most <= _SMALL_REPEAT:
            return within * int(most)
        return 1 if within == 0 else REPEATS_MAX + 1
    if operation is _constants.BRANCH:
        return max(map(_repeats, argument[1]), default=0)
    if operation is _constants.SUBPATTERN:
        return _repeats(argument[-1])
    if operation in (_constants.ASSERT, _constants.ASSERT_NOT):
        return _repeats(argument[1])
    if operation in (_constants.ATOMIC_GROUP, _constants.POSSESSIVE_REPEAT):
        return 0  # these never go back
    return 0
