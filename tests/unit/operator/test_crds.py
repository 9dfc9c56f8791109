"""The kinds: the chart has the types' schemas, and Kubernetes' rules for schemas hold."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from penstock.cluster.record import Leader, ShardRecord
from penstock_operator.api import KINDS
from penstock_operator.api.crds import NAMES, crd, guarded, names, rendered
from penstock_operator.api.document import with_fields
from penstock_operator.api.kinds import Kind
from penstock_operator.api.shard import PLURAL as SHARDS
from penstock_operator.api.shard import shard_crd

CHART = Path(__file__).parents[3] / "charts" / "penstock-operator" / "templates" / "crds"
BAD = sorted((Path(__file__).parents[2] / "operator" / "bad").glob("*.yaml"))
# Parts of the API server's own messages, which no rule of ours states.
OF_THE_API_SERVER = (
    "supported values:",
    "in body should match",
    "in body must be of type",
    "in body should be less than",
    "Required value",
    "Unsupported value",
    "unknown field",
    "Too long:",
)
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=str)


@kinds
def test_the_chart_has_the_kinds_as_the_types_say_them(kind: Kind) -> None:
    assert (CHART / f"{kind.plural}.yaml").read_text() == rendered(kind), "run `make crds`"


def test_the_chart_lists_the_kinds() -> None:
    assert (CHART / NAMES).read_text() == names(), "run `make crds`"
    assert all(f" {kind.crd_name} " in names().replace("{", " ").replace("}", " ") for kind in KINDS.values())


def test_the_chart_has_no_other_kinds() -> None:
    assert {path.stem for path in CHART.glob("*.yaml")} == {SHARDS, *(kind.plural for kind in KINDS.values())}


def test_the_chart_has_the_kind_of_the_brokers() -> None:
    assert (CHART / f"{SHARDS}.yaml").read_text() == guarded(shard_crd()), "run `make crds`"
    schema = shard_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert [path for path, node in walk(schema, "spec") if not is_bounded(node)] == []


def test_the_kind_of_the_brokers_has_the_fields_of_their_record() -> None:
    schema = shard_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    record = schema["properties"]["record"]
    assert record["properties"].keys() == ShardRecord.model_fields.keys()
    assert record["properties"]["leader"]["properties"].keys() == Leader.model_fields.keys()


@kinds
def test_every_string_list_and_map_of_a_spec_has_a_bound(kind: Kind) -> None:
    spec = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]

    unbounded = [path for path, node in walk(spec, "spec") if not is_bounded(node)]
    assert unbounded == []


def walk(node: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, node
    for name, child in node.get("properties", {}).items():
        yield from walk(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if name in node:
            yield from walk(node[name], f"{path}.{name}")


def is_bounded(node: dict[str, Any]) -> bool:
    if "additionalProperties" in node:
        return "maxProperties" in node
    if node.get("type") == "string":
        return "maxLength" in node or "enum" in node
    return node.get("type") != "array" or "maxItems" in node


@kinds
def test_every_rule_says_what_to_write(kind: Kind) -> None:
    schema = crd(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    messages = [rule["message"] for _, node in walk(schema, "") for rule in node.get("x-kubernetes-validations", [])]

    assert messages
    assert [message for message in messages if ";" not in message and "write" not in message] == []


def test_short_names_are_told_apart() -> None:
    names = [kind.short for kind in KINDS.values()]

    assert len(set(names)) == len(names)
    assert KINDS["Cluster"].short == "psc"


def test_the_page_lists_the_fields_as_the_types_say_them() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kubernetes.md").read_text()

    assert page == with_fields(page), "run `make crds`"
    assert "`storage.size`" in page


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_wrong_manifest_expects_a_message_that_its_kind_has(path: Path) -> None:
    """The API server checks the manifests in `make e2e`; this compares the expected messages with the rules."""
    expected = path.read_text().splitlines()[0].removeprefix("# ")
    *_, wrong = yaml.safe_load_all(path.read_text())
    schema = crd(KINDS[wrong["kind"]])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    messages = [rule["message"] for _, node in walk(schema, "") for rule in node.get("x-kubernetes-validations", [])]

    assert any(part in expected for part in OF_THE_API_SERVER) or expected in messages
