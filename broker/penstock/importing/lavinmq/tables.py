"""Headers of messages as LavinMQ stores them: field tables in network order, exactly as a client sent them.

They are copied and not encoded again, so that every width, order and repeated name stays. Two tags that other clients
write are replaced by tags that this broker reads and that have the same bytes behind them.
"""

from typing import Final

from penstock.model.field_table import FieldTableError

DEPTH_MAX: Final = 64
"""The nesting limit of tables and arrays, the outermost included, for the native reader of a log."""
_SIZES: Final = {
    ord(tag): size for tag, size in zip("VtbBsUuIiflLdTD", (0, 1, 1, 1, 2, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5), strict=True)
}
_LONG: Final = frozenset(b"SxAF")
_SAME: Final = {ord("U"): ord("s"), ord("L"): ord("l")}


def readable_table(content: bytes) -> bytes:
    """Return the table with every tag readable here. Raises FieldTableError. Nesting takes no recursion."""
    changed: bytearray | None = None
    ends = [(len(content), True)]
    at = 0
    while ends:
        end, is_table = ends[-1]
        if at == end:
            ends.pop()
            continue
        at += 1 + content[at] if is_table else 0
        if at >= end:
            raise FieldTableError("a name longer than its parent", at)
        tag = content[at]
        if tag in _SAME:
            changed = changed or bytearray(content)
            changed[at] = _SAME[tag]
        start, stop = _extent(content, at, end)
        if tag in b"AF":
            ends.append((stop, tag == ord("F")))
            if len(ends) > DEPTH_MAX:
                raise FieldTableError(f"nesting deeper than {DEPTH_MAX}", at)
        at = start if tag in b"AF" else stop
    return content if changed is None else bytes(changed)


def _extent(content: bytes, at: int, end: int) -> tuple[int, int]:
    """Return where the content of the value at `at` begins and ends."""
    tag, start = content[at], at + 1
    if tag in _LONG:
        start += 4
        size = int.from_bytes(content[at + 1 : start], "big")
    elif tag in _SIZES:
        size = _SIZES[tag]
    else:
        raise FieldTableError(f"unknown tag {bytes((tag,))!r}", at)
    if start + size > end:
        raise FieldTableError("a value longer than its parent", at)
    return start, start + size
