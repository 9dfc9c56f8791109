"""Regular expressions that users supply, compiled and matched by the native module in time linear in the text.

It is the part of the native module that the pure packages may import: a pattern has no state, reads no clock and does
no I/O. Length, repetitions and memory of a pattern are bounded; look-around, back-references and what other engines
read differently are refused by name.
"""

from typing import Final

from penstock._core import Pattern
from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

PATTERN_LENGTH_MAX: Final = 1_024
"""In characters. Longer patterns are hard to read and cost time to compile."""


def compile_pattern(
    kind: str, source: str, *, is_searched: bool = False, shown: str | None = None, owner: Thing | None = None
) -> Pattern:
    """Compile a pattern that must match a whole name or, with `is_searched`, any part of one.

    `kind` is the field that messages name, `shown` the user's text from which `source` is made, `owner` the object that
    has the pattern. Raises InvalidArgumentError and TooLargeError.
    """
    written = source if shown is None else shown
    if len(written) > PATTERN_LENGTH_MAX:
        thing, rule = _about(kind, f"is {len(written)} characters long", owner)
        raise TooLargeError(thing, rule, size=len(written), size_max=PATTERN_LENGTH_MAX)
    try:
        return Pattern(source, is_whole=not is_searched)
    except InvalidArgumentError as error:
        thing, rule = _about(written, error.rule, owner)
        raise InvalidArgumentError(thing, rule, error.way_out, field=kind) from error
    except UnicodeEncodeError as error:
        thing, rule = _about(written.encode(errors="backslashreplace").decode(), "is not valid Unicode", owner)
        raise InvalidArgumentError(thing, rule, "send the pattern as UTF-8", field=kind) from error


def _about(name: str, rule: str, owner: Thing | None) -> tuple[Thing, str]:
    return (Thing("pattern", name), rule) if owner is None else (owner, f"has the pattern '{name}', which {rule}")


__all__ = ["PATTERN_LENGTH_MAX", "Pattern", "compile_pattern"]
