"""Check that docs/failures.md has a section for each reason, event and alert, and no other, and that all are alike."""

import re
from pathlib import Path

import pytest
import yaml

from penstock.client import errors
from penstock_operator.api import KINDS
from penstock_operator.desired.alerts import ALERTS, RUNBOOK, anchor

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / RUNBOOK
OPERATOR = ROOT / "operator" / "penstock_operator"
CHART = ROOT / "charts" / "penstock-operator" / "templates"
# Texts of the code from which a reason begins, or an event.
REASONS = (
    r'(?:NotYet|Refused?|_ProblemError)\(\s*"([A-Z]\w+)"',
    r'Says\(\s*"\w+",\s*"\w+",\s*"(\w+)"',
    r'Outcome\([^"\n]*"([A-Z]\w+)"',
    r'(?:return|return \(|return None, \()\s*"([A-Z]\w+)", ?(?:f?"|message|str\()',
)
EVENTS = r'(?:\breason=|\bTell\(|\bNote\(|\bLEFT: Final = |_tell\(manifest, )"([A-Z]\w+)"'
# Reasons of conditions that are as they should be, and a phase.
GOOD = {"Applied", "Completed", "Healthy", "NoWarnings", "Running", "Scheduled", "Serving", "Synced", "Valid"}
# Only a publisher gets it.
NOT_A_REASON = errors.ReturnedError
PARTS = ["You see", "Penstock does", "You do"]
# The nouns of `kubectl` beside our kinds.
NOUNS = {
    *("certificate", "configmap", "crds", "deploy", "endpointslices", "events", "jobs", "leases", "networkpolicies"),
    *("node", "nodes", "penstock", "pod", "pods", "pv", "pvc", "resourcequotas", "secret", "service", "storageclass"),
}


def code() -> str:
    """Return the operator's code, with the reasons that end in the phase of a claim."""
    text = "\n".join(path.read_text() for path in sorted(OPERATOR.rglob("*.py")))
    return text.replace('f"Volume{phase}"', '"VolumePending"), Says("x", "x", "VolumeLost"')


def reasons() -> set[str]:
    """Return the reasons in the code, and those made of the names of the client's refusals."""
    refusals = [each for each in errors.RefusedError.__subclasses__() if each is not NOT_A_REASON]
    found = {reason for form in REASONS for reason in re.findall(form, code())}
    return found | {each.__name__.removesuffix("Error") for each in refusals}


def news() -> set[str]:
    """Return the events that docs/kubernetes.md lists, which report no failure."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    table = text[text.index("| event | it says |") : text.index("\n## Local volumes")]
    rows = [row for row in table.splitlines()[2:] if row.startswith("|")]
    return set(re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in rows)))


def alerts() -> dict[str, str]:
    """Return the expression of every alert of both charts, without labels."""
    text = (CHART / "alerts.yaml").read_text()
    values = yaml.safe_load((CHART.parent / "values.yaml").read_text())["alerts"]
    text = text.replace("{{ int .Values.alerts.backupAgeHours }}", str(values["backupAgeHours"]))
    of_operator = dict(re.findall(r"- alert: (\w+)\n +expr: '(.+)'\n", text))
    found = {name: expression.format(s="") for name, expression, *_ in ALERTS} | of_operator
    return {name: re.sub(r"\{( \{\{.*?\}\} ?,?[^}]*)?\}", "", expression) for name, expression in found.items()}


def sections() -> dict[str, str]:
    """Return the text of each section by its heading."""
    parts = re.split(r"^### ", re.sub(r"^## .*$", "", PAGE.read_text(), flags=re.MULTILINE), flags=re.MULTILINE)[1:]
    found = dict(part.split("\n", 1) for part in parts)
    assert len(found) == len(parts), "a section stands twice"
    return found


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_reason_event_and_alert_has_a_section_and_no_section_is_of_none() -> None:
    found = (reasons() | set(re.findall(EVENTS, code()))) - GOOD
    assert {"Conflict", "SecretTaken", "Locked", "BrokerBlocked", "JobRefused", "BackupFailed", "NameTaken"} <= found
    assert {"Unschedulable", "VolumeLost", "BrokerRefused", "RestoreFailed", "BackupNotFound", "Stopped"} <= found
    assert {"DriftRepaired", "LeftAtTarget", "RollingPod", "BackupsMissed"} <= found

    # A heading of several words is of a failure that nothing reports by a word.
    words = {heading for heading in sections() if " " not in heading}
    assert words == (found - news()) | set(alerts())
    assert news() <= found


def test_an_event_that_warns_has_a_section() -> None:
    warnings = {"DriftRepaired", "DeletionWaits", "LeftOnBroker", "LeftAtTarget", "SecretMade"}

    assert warnings | {"BackupSkipped", "BackupsMissed"} <= set(sections())


@pytest.mark.parametrize("heading", sections())
def test_a_section_has_its_three_parts_and_a_command(heading: str) -> None:
    text = sections()[heading]

    assert re.findall(r"^\*\*(.+?):\*\*", text, re.MULTILINE) == PARTS
    action = text[text.index("**You do:**") :]
    assert re.search(r"\bkubectl |\bpenstock \w|\bhelm |\*\* (?:Nothing|Wait)\b", action), "no command, and not nothing"


def test_the_commands_name_kinds_that_exist() -> None:
    ours = {name for kind in KINDS.values() for name in (kind.short, kind.plural, kind.name.lower(), kind.crd_name)}
    verbs = "get|describe|annotate|delete|patch|scale|edit|logs|create|rollout restart|auth can-i list"
    named = re.findall(rf"kubectl(?: --namespace \S+)? (?:{verbs}) ([a-z][\w.,/]*)", PAGE.read_text())
    nouns = {noun.split("/")[0] for each in named for noun in each.split(",")}

    assert len(nouns) > 20
    assert {noun for noun in nouns if noun not in NOUNS | ours and not noun.startswith("mq")} == set()


def test_the_table_of_alerts_is_that_of_the_charts() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(failures\.md#(\w+)\) \| `([^`]+)` \|", text, re.MULTILINE)

    assert {name: expression for name, _, expression in rows} == alerts()
    assert [link for name, link, _ in rows if link != anchor(name)] == []


def test_an_alert_of_the_chart_leads_to_its_own_section_or_to_that_of_the_reason() -> None:
    text = (CHART / "alerts.yaml").read_text()
    named = dict(re.findall(r'- alert: (\w+)(?:\n.*?)*?"penstock-operator.runbook" \(list "(.+?)" \.\)', text))

    assert named.pop("PenstockObjectsNotReady") == "{{ $labels.reason | toLower }}"
    assert named == {name: anchor(name) for name in re.findall(r"- alert: (\w+)", text) if name in named}
    assert len(named) == text.count("- alert: ") - 1


def test_links_between_the_pages_for_failures_lead_to_a_heading() -> None:
    for page in (PAGE, ROOT / "docs" / "kubernetes.md"):
        for target, fragment in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            assert fragment in anchors(page.parent / target if target else page), f"{page.name}: {target}#{fragment}"
