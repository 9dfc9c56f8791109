"""Check that docs/kubernetes.md has every reason of conditions of objects in a broker, and every alert."""

import re
from pathlib import Path

from penstock.client import errors
from penstock_operator.desired.watching import ALERTS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "kubernetes.md"
OPERATOR = ROOT / "operator" / "penstock_operator"
MODULES = (
    "engine/claims",
    "engine/home",
    "engine/removal",
    "engine/topology",
    "engine/users",
    "desired/accounts",
    "desired/ownership",
)
# Only a publisher gets it.
NOT_A_REASON = errors.ReturnedError


def section(heading: str, end: str) -> str:
    text = DOCUMENT.read_text()
    return text[text.index(f"### {heading}\n") : text.index(f"\n{end}\n")]


def reasons() -> set[str]:
    """Return the reasons in the code, and those made of the names of the client's refusals."""
    text = "\n".join((OPERATOR / f"{name}.py").read_text() for name in MODULES)
    refusals = [each for each in errors.RefusedError.__subclasses__() if each is not NOT_A_REASON]
    return {
        *re.findall(r'(?:NotYet|Refused?)\(\s*"(\w+)"', text),
        *(each.__name__.removesuffix("Error") for each in refusals),
    }


def test_every_reason_of_a_condition_is_documented() -> None:
    found = reasons()

    assert {"Conflict", "SecretTaken", "Locked"} <= found
    assert found - set(re.findall(r"`(\w+)`", section("Conditions of objects in a broker", "### Data loss"))) == set()


def test_every_alert_is_documented_and_no_other() -> None:
    named = re.findall(r"\bPenstock[A-Z]\w+", section("Alerts", "## All fields"))

    assert sorted(named) == sorted(name for name, *_ in ALERTS)
