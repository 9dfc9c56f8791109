"""`policies.json` and `operator_policies.json` of a vhost, in LavinMQ's format.

They are lists of objects with name, pattern, apply-to, priority and definition, checked field by field; an error names
the place. This module does not know the meaning of a definition's keys, only what they were called before.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.model.old_names import OF_POLICIES, with_todays_names
from penstock.storage.jsonfiles import json_content, write_file
from penstock.storage.records_json import Place, read_places

POLICIES: Final = "policies.json"
OPERATOR_POLICIES: Final = "operator_policies.json"


@dataclass(frozen=True, slots=True)
class PolicyRecord:
    name: str
    pattern: str
    apply_to: str = "all"
    priority: int = 0
    definition: dict[str, object] = field(default_factory=dict)


def read_policies(path: Path) -> list[PolicyRecord]:
    """Return the policies; a missing file has none. Raises StorageError."""
    return [_policy(place) for place in read_places(path)]


def write_policies(path: Path, vhost: str, policies: list[PolicyRecord]) -> None:
    write_file(path, policies_content(vhost, policies))


def policies_content(vhost: str, policies: list[PolicyRecord]) -> bytes:
    """Return the content of a file."""
    content = [
        {
            "name": policy.name,
            "vhost": vhost,
            "pattern": policy.pattern,
            "apply-to": policy.apply_to,
            "priority": policy.priority,
            "definition": policy.definition,
        }
        for policy in policies
    ]
    return json_content(content)


def _policy(place: Place) -> PolicyRecord:
    place.only("name", "vhost", "pattern", "apply-to", "priority", "definition")
    return PolicyRecord(
        place.text("name"),
        place.text("pattern"),
        place.text("apply-to", "all"),
        place.integer("priority", 0),
        with_todays_names(place.values("definition"), OF_POLICIES),
    )
