"""Conditions: statements about an object with their times.

An unchanged condition keeps its time, so that an unchanged status is not written again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MESSAGE_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Says:
    """One condition to set."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def merged(
    before: Iterable[Mapping[str, Any]], now: Iterable[Says], generation: int, time: str
) -> list[dict[str, Any]]:
    """Return the conditions to write, without obsolete ones."""
    known = {each.get("type"): each for each in before}
    return [_condition(known.get(says.type, {}), says, generation, time) for says in now]


def _condition(before: Mapping[str, Any], says: Says, generation: int, time: str) -> dict[str, Any]:
    is_same = before.get("status") == says.status
    return {
        "type": says.type,
        "status": says.status,
        "reason": says.reason,
        "message": says.message[:MESSAGE_LENGTH_MAX],
        "lastTransitionTime": before.get("lastTransitionTime", time) if is_same else time,
        "observedGeneration": generation,
    }


def status_of(conditions: Iterable[Mapping[str, Any]], name: str) -> str:
    """Return True, False, Unknown, or empty when the condition is absent."""
    return next((str(each.get("status")) for each in conditions if each.get("type") == name), "")
