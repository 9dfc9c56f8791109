"""Check that docs/kubernetes.md has every reason of a condition, and that every alert has its section and its row."""

import re
from pathlib import Path

import yaml

from penstock.client import errors
from penstock_operator.desired.alerts import ALERTS, RUNBOOK, anchor

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "kubernetes.md"
OPERATOR = ROOT / "operator" / "penstock_operator"
MODULES = (
    "desired/connection",
    "engine/claims",
    "engine/connection",
    "engine/home",
    "engine/removal",
    "engine/topology",
    "engine/users",
    "desired/accounts",
    "desired/ownership",
)
OF_CLUSTERS = ("desired/cluster_status", "engine/administrator", "engine/cluster", "engine/observing", "engine/volume")
# Reasons of conditions that are as they should be, and a phase.
GOOD = {"Applied", "Healthy", "NoWarnings", "Running", "Serving", "Synced", "Valid"}
CHART = ROOT / "charts" / "penstock-operator" / "templates"
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
        *re.findall(r'(?:NotYet|Refused?|_ProblemError)\(\s*"(\w+)"', text),
        *(each.__name__.removesuffix("Error") for each in refusals),
    }


def first_names(table: str) -> set[str]:
    """Return the names in the first cells of a table, of which every row has a cell for each column."""
    rows = [row for row in table.splitlines() if row.startswith("|")]
    assert {row.count(" | ") for row in rows[2:]} == {rows[0].count(" | ")}
    return set(re.findall(r"`(\w+)`", " ".join(row.split(" | ")[0] for row in rows)))


def test_every_reason_of_a_condition_is_documented_with_a_remedy() -> None:
    found = reasons()

    assert {"Conflict", "SecretTaken", "Locked"} <= found
    assert found - first_names(section("Conditions of objects in a broker", "### Events")) == set()


def test_every_reason_of_a_backup_is_documented_with_a_remedy() -> None:
    paths = [*OPERATOR.glob("engine/backup*.py"), OPERATOR / "desired" / "backup.py"]
    text = "\n".join(path.read_text() for path in paths)
    found = set(re.findall(r'(?:NotYet\(|Outcome\([^"\n]*)"([A-Z]\w+)"', text)) - GOOD - {"Completed", "InvalidSpec"}

    assert {"JobRefused", "BackupFailed"} <= found
    assert found - first_names(section("Failures of backups", "## Changes and maintenance")) == set()


def test_every_event_is_documented() -> None:
    text = "\n".join(path.read_text() for path in OPERATOR.rglob("*.py"))
    found = set(re.findall(r'(?:\breason=|\bTell\(|\bNote\(|\bLEFT: Final = )"([A-Z]\w+)"', text))

    assert {"DriftRepaired", "LeftAtTarget", "RollingPod"} <= found
    assert found - first_names(section("Events", "### Data loss")) == set()


def reasons_of_clusters() -> set[str]:
    """Return the reasons of the conditions of Clusters, also those that end in the phase of a claim."""
    text = "\n".join((OPERATOR / f"{name}.py").read_text() for name in OF_CLUSTERS)
    text = text.replace('f"Volume{phase}"', '"VolumePending", "VolumeLost"')
    says = re.findall(r'Says\(\s*"\w+",\s*"\w+",\s*((?:"\w+"(?:, )?)+)', text)
    others = re.findall(r'(?:NotYet\(|return |return None, \()\s*"([A-Z]\w+)"', text)
    return {*re.findall(r"\w+", " ".join(says)), *others} - GOOD


def test_every_reason_of_a_cluster_is_documented_with_a_remedy() -> None:
    found = reasons_of_clusters()
    table = section("Conditions of a Cluster", "### Deletions that wait")

    assert {"Unschedulable", "VolumeLost", "BrokerRefused", "ExpansionUnsupported", "Untrusted", "Stopped"} <= found
    assert found - first_names(table) == set()


def alerts() -> dict[str, str]:
    """Return the expression of every alert of both charts, without labels."""
    text = (CHART / "alerts.yaml").read_text()
    values = yaml.safe_load((CHART.parent / "values.yaml").read_text())["alerts"]
    text = text.replace("{{ int .Values.alerts.backupAgeHours }}", str(values["backupAgeHours"]))
    of_operator = dict(re.findall(r"- alert: (\w+)\n +expr: '(.+)'\n", text))
    found = {name: expression.format(s="") for name, expression, *_ in ALERTS} | of_operator
    return {name: re.sub(r"\{( \{\{.*?\}\} ?,?[^}]*)?\}", "", expression) for name, expression in found.items()}


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes of the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_alert_has_a_section_and_no_section_lacks_its_alert() -> None:
    page = ROOT / RUNBOOK
    names = set(alerts())

    assert set(re.findall(r"^## (\w+)$", page.read_text(), re.MULTILINE)) == names
    assert {anchor(name) for name in names} <= anchors(page)
    for part in re.split(r"^## ", page.read_text(), flags=re.MULTILINE)[1:]:
        assert re.findall(r"^\*\*(.+?):\*\*", part, re.MULTILINE) == ["You see", "It means", "Do"]


def test_the_table_of_alerts_is_that_of_the_charts() -> None:
    text = (ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| \[(\w+)\]\(alerts\.md#(\w+)\) \| `([^`]+)` \|", text, re.MULTILINE)

    assert {name: expression for name, _, expression in rows} == alerts()
    assert [link for name, link, _ in rows if link != anchor(name)] == []


def test_an_alert_of_the_chart_names_its_own_section() -> None:
    text = (CHART / "alerts.yaml").read_text()
    named = re.findall(r'"penstock-operator.runbook" \(list "(\w+)" \.\)', text)

    assert named == re.findall(r"- alert: (\w+)", text)


def test_links_between_the_pages_for_failures_lead_to_a_heading() -> None:
    for name in ("alerts.md", "kubernetes.md"):
        page = ROOT / "docs" / name
        for target, fragment in re.findall(r"\]\(([\w./-]*)#([\w-]+)\)", page.read_text()):
            assert fragment in anchors(page.parent / target if target else page), f"{name}: {target}#{fragment}"
