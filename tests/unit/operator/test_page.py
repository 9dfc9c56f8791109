"""The Kubernetes page lists every reason of conditions."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "kubernetes.md").read_text()
SOURCES = [path.read_text() for path in (ROOT / "operator" / "penstock_operator").rglob("*.py")]
# Normal or temporary states.
PLAIN = {"Serving", "Applied", "Synced", "Healthy", "NoWarnings", "Valid", "Starting", "Stopped", "Scheduled"}
GIVEN = (
    r"NotYet\(\s*\"([A-Z]\w+)\"",
    r"Refused?\(\s*\"([A-Z]\w+)\"",
    r"Says\(\"\w+\", \"\w+\", \"([A-Z]\w+)\"",
    r"return \(?\s*\"([A-Z]\w+)\", f?\"",
    r"None, \(\"([A-Z]\w+)\", ",
)


def test_every_reason_is_on_the_page() -> None:
    reasons = {found for source in SOURCES for pattern in GIVEN for found in re.findall(pattern, source)} - PLAIN

    assert {"ClusterNotFound", "DataReplaced", "ImagePullFailed", "ExpansionUnsupported", "BrokerRefused"} <= reasons
    assert [reason for reason in sorted(reasons) if f"`{reason}`" not in PAGE] == []
