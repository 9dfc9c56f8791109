"""JSON objects as options have them: each name once, and nested no deeper than is wanted.

Pure: no wire, no Spark.
"""

import json
from typing import Any

__all__ = ["parse_object"]


def parse_object(value: str, wanted: str) -> dict[str, Any]:
    """Parse an object that is not empty; raise ValueError, with what is wanted, when the text is none."""
    try:
        pairs: Any = json.loads(value, object_pairs_hook=Pairs)
    except (ValueError, RecursionError):
        raise ValueError(wanted) from None
    if not isinstance(pairs, Pairs) or not pairs:
        raise ValueError(wanted)
    return {name: named_once(inner) if isinstance(inner, Pairs) else inner for name, inner in named_once(pairs).items()}


class Pairs(list[tuple[str, Any]]):
    """The names and values of an object, as they were written."""


def named_once(pairs: Pairs) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"it names '{name}' twice; name each once")
        found[name] = value
    return found
