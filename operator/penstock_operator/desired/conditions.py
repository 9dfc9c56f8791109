"""Conditions: what is said about an object, and since when. A condition that says the same as before keeps its
time, so that a status which has nothing new is not written again."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

MESSAGE_LENGTH_MAX = 4_096


@dataclass(frozen=True, slots=True)
class Says:
    """One condition to be set."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


def merged(
    before: Iterable[Mapping[str, Any]], now: Iterable[Says], generation: int, time: str
) -> list[dict[str, Any]]:
    """The conditions to be written, those that nobody says any more left out."""
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
    """True, False, Unknown, or empty when nothing is said."""
    return next((str(each.get("status")) for each in conditions if each.get("type") == name), "")
