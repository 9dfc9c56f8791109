"""`policies.json` and `operator_policies.json` of a vhost, as LavinMQ writes them: a list of objects with name,
pattern, apply-to, priority and definition. Checked field by field, with the place of what is wrong; what a definition's
keys mean is not known here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.storage.jsonfiles import write_json
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
    """A file that is not there holds none. Raises StorageError."""
    return [_policy(place) for place in read_places(path)]


def write_policies(path: Path, vhost: str, policies: list[PolicyRecord]) -> None:
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
    write_json(path, content)


def _policy(place: Place) -> PolicyRecord:
    place.only("name", "vhost", "pattern", "apply-to", "priority", "definition")
    return PolicyRecord(
        place.text("name"),
        place.text("pattern"),
        place.text("apply-to", "all"),
        place.integer("priority", 0),
        place.values("definition"),
    )
