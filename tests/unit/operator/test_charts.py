"""The charts, without helm: values and schemas agree, and dashboards and alerts use only existing metrics."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.frontends.http.metrics import COUNTERS, GAUGES
from penstock_operator.api import ClusterSpec, UserSpec, VHostSpec
from penstock_operator.api.broker_config import OWNED
from penstock_operator.api.cluster import Config
from penstock_operator.desired.alerts import RUNBOOK, prometheus_rule
from penstock_operator.desired.naming import Owner
from penstock_operator.links.counts import Counts
from tools.document_charts import readme

ROOT = Path(__file__).parents[3]
CHARTS = [ROOT / "charts" / name for name in ("penstock-operator", "penstock")]
charts = pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
# Metrics of manual collectors, of the process collector and of Prometheus itself.
OTHERS = {
    "penstock_build_info",
    "penstock_uptime_seconds",
    "penstock_recovery_seconds",
    "penstock_certificate_not_after_timestamp_seconds",
    "penstock_queues",
    "penstock_queue_messages_ready",
    "penstock_queue_messages_unacked",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
    "up",
}
FIGURES = {f"{name}_total" for name, _ in COUNTERS.values()} | {name for name, _ in GAUGES.values()} | OTHERS


def figures(expression: str) -> set[str]:
    return set(re.findall(r"\b((?:penstock|process)_\w+|up)\b(?=[{\[])", expression))


@charts
def test_the_schema_has_every_value_and_no_other(chart: Path) -> None:
    values = yaml.safe_load((chart / "values.yaml").read_text())
    schema = json.loads((chart / "values.schema.json").read_text())

    assert missing(values, schema) == []
    assert schema["additionalProperties"] is False
    assert set(schema["properties"]) - {"global"} == set(values)


@pytest.mark.parametrize("kind", [VHostSpec, UserSpec])
def test_the_chart_takes_every_limit_of_a_kind(kind: type[VHostSpec] | type[UserSpec]) -> None:
    schema = json.loads((ROOT / "charts" / "penstock" / "values.schema.json").read_text())
    items = schema["properties"]["vhosts" if kind is VHostSpec else "users"]["items"]

    limits = kind.model_fields["limits"].annotation
    assert limits is not None
    assert set(items["properties"]["limits"]["properties"]) == {field.alias for field in limits.model_fields.values()}


def missing(values: Any, schema: dict[str, Any], path: str = "") -> list[str]:
    """Return paths of values that the schema does not name, where it names any."""
    named = schema.get("properties")
    if not isinstance(values, dict) or named is None:
        return []
    found = [f"{path}{key}" for key in values if key not in named]
    return found + [
        each for key in values if key in named for each in missing(values[key], named[key], f"{path}{key}.")
    ]


@charts
def test_the_chart_has_the_project_s_version(chart: Path) -> None:
    about = yaml.safe_load((chart / "Chart.yaml").read_text())
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    operator = tomllib.loads((ROOT / "operator" / "pyproject.toml").read_text())["project"]

    assert {about["version"], about["appVersion"], operator["version"]} == {workspace["version"]}
    assert f"penstock:{workspace['version']}" in (ROOT / "examples/kubernetes/job.yaml").read_text()


def test_the_chart_takes_every_setting_of_the_broker_that_the_kind_has() -> None:
    schema = json.loads((CHARTS[1] / "values.schema.json").read_text())

    known = {field.alias for name, field in Config.model_fields.items() if name not in OWNED}
    assert set(schema["properties"]["config"]["properties"]) == known


@pytest.mark.parametrize("path", sorted((CHARTS[1] / "dashboards").glob("*.json")), ids=lambda path: path.stem)
def test_a_dashboard_uses_only_figures_that_the_broker_has(path: Path) -> None:
    dashboard = json.loads(path.read_text())
    used = {name for panel in dashboard["panels"] for target in panel["targets"] for name in figures(target["expr"])}

    assert len(used) > 10
    assert used - FIGURES == set()
    assert len({panel["id"] for panel in dashboard["panels"]}) == len(dashboard["panels"])
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {"${datasource}"}


def alerts(replicas: int = 1, **more: str) -> list[dict[str, Any]]:
    """Return the alerts of a Cluster."""
    spec = {
        "image": "penstock:test",
        "replicas": replicas,
        "monitoring": {"prometheusRule": {"enabled": True, **more}},
    }
    manifest = prometheus_rule(Owner("mq", "shop", "uid", ClusterSpec.model_validate(spec)))
    assert manifest is not None
    (group,) = manifest["spec"]["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def test_an_alert_uses_only_figures_that_the_broker_has() -> None:
    for alert in alerts():
        assert figures(alert["expr"])
        assert figures(alert["expr"]) - FIGURES == set()
        assert 'namespace="shop",service="mq"' in alert["expr"]


def test_an_alert_about_the_operator_uses_only_figures_that_the_operator_has() -> None:
    text = (CHARTS[0] / "templates" / "alerts.yaml").read_text()
    used = figures(text)

    assert len(used) == text.count("- alert: ")
    known = set(re.findall(r"^# TYPE (\w+)", Counts().exposition().decode(), re.MULTILINE))
    assert used - known == set()


def test_a_cluster_that_is_stopped_on_purpose_is_not_down() -> None:
    stopped, running = ({alert["alert"] for alert in alerts(replicas)} for replicas in (0, 1))

    assert running - stopped == {"PenstockDown"}


def test_the_page_of_an_alert_is_a_url_where_one_is_given() -> None:
    for alert in alerts():
        assert alert["annotations"]["runbook"] == f"{RUNBOOK}#{alert['alert'].lower()}"
        assert "runbook_url" not in alert["annotations"]

    for alert in alerts(runbookUrl="https://docs.example.com/alerts"):
        assert alert["annotations"]["runbook_url"] == f"https://docs.example.com/alerts#{alert['alert'].lower()}"


@charts
def test_the_readme_of_a_chart_lists_its_values(chart: Path) -> None:
    assert (chart / "README.md").read_text() == readme(chart), "run `make crds`"


@charts
def test_a_name_that_yaml_may_take_for_a_number_is_quoted(chart: Path) -> None:
    # In a namespace '2026' the API server refused every object: its namespace was a number.
    texts = "\n".join(path.read_text() for path in sorted((chart / "templates").rglob("*.*")))
    name = r'(?:\.Release\.Name(?:space)?|\.name" \.|\$name|\$class|secretName| \.)'
    bare = re.findall(rf": \{{\{{-? ?([^|}}]*{name}) ?\}}\}}\s*$", texts, re.MULTILINE)

    assert bare == []


@charts
def test_amounts_of_resources_are_texts_or_numbers(chart: Path) -> None:
    # A list was refused only by the API server, and by the chart penstock a number as well, as in "cpu: 2".
    schema = json.loads((chart / "values.schema.json").read_text())
    parts = schema["properties"]["resources"]["properties"]

    assert parts == {part: {"$ref": "#/definitions/amounts"} for part in ("requests", "limits")}
    assert schema["definitions"]["amounts"]["additionalProperties"]["type"] == ["string", "number"]
