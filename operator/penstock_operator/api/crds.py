"""Writes CustomResourceDefinitions from the models: structural schemas with defaults, rules and columns.

A test compares the chart with the output of `python -m penstock_operator.api.crds DIRECTORY`.
"""

import sys
from pathlib import Path
from typing import Any

import yaml

from penstock_operator.api.fields import PRESERVE, VALIDATIONS, Model, rule, rules
from penstock_operator.api.kinds import GROUP, KINDS, VERSION, Kind
from penstock_operator.api.shard import CRD_NAME as SHARD_CRD
from penstock_operator.api.shard import PLURAL as SHARDS
from penstock_operator.api.shard import shard_crd

Schema = dict[str, Any]
# Services and volumes are named after the Cluster: its name leaves space for their suffixes.
_CLUSTER_NAME = rule(
    "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 40",
    "a Cluster's name has at most 40 small letters, digits and '-', and begins with a letter; choose another",
)
# A size that the storage class refused can be put back: status.storageSize is the size that the volumes have.
_NO_SHRINKING = rule(
    "quantity(self.spec.storage.size).compareTo(quantity(oldSelf.spec.storage.size)) >= 0"
    " || (has(self.status) && has(self.status.storageSize)"
    " && quantity(self.spec.storage.size).compareTo(quantity(self.status.storageSize)) >= 0)",
    "size cannot shrink; write the old size or a larger one",
)
# Its Backups have its name in theirs, with the time that was due.
_SCHEDULE_NAME = rule(
    "size(self.metadata.name) <= 50", "a ScheduledBackup's name has at most 50 characters; choose a shorter one"
)
_OBJECT_RULES = {"Cluster": (_CLUSTER_NAME, _NO_SHRINKING), "ScheduledBackup": (_SCHEDULE_NAME,)}
GENERATED = "# Generated from the types: make crds"
NAMES = "_kinds.tpl"
_KEPT = (
    "description",
    "type",
    "enum",
    "default",
    "format",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
)


def crd(kind: Kind) -> Schema:
    """Return the manifest of one kind."""
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": _object_schema(kind)},
        "subresources": _subresources(kind),
        "additionalPrinterColumns": [column.manifest() for column in kind.columns],
    }
    if kind.has_cluster:
        version["selectableFields"] = [{"jsonPath": ".spec.clusterRef.name"}]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": kind.crd_name},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": kind.name.lower(),
                "shortNames": [kind.short],
                "categories": ["penstock"],
            },
            "versions": [version],
        },
    }


def _subresources(kind: Kind) -> Schema:
    found: Schema = {"status": {}}
    if kind.has_scale:
        found["scale"] = {
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    return found


def _object_schema(kind: Kind) -> Schema:
    return {
        "type": "object",
        "description": kind.says,
        "required": ["spec"],
        **(rules(*_OBJECT_RULES[kind.name]) if kind.name in _OBJECT_RULES else {}),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(kind.spec),
            "status": structural(kind.status, with_defaults=False),
        },
    }


def structural(model: type[Model], *, with_defaults: bool = True) -> Schema:
    """Return a model's schema in Kubernetes' form: no references, no nulls, no alternatives."""
    found = model.model_json_schema(by_alias=True)
    return _convert(found, found.get("$defs", {}), with_defaults)


def _convert(node: Schema, named: Schema, with_defaults: bool) -> Schema:
    if "$ref" in node:
        target = named[node["$ref"].rsplit("/", 1)[-1]]
        node = {**target, **{key: value for key, value in node.items() if key != "$ref"}}
    if node.get("x-kubernetes-int-or-string"):
        return {"x-kubernetes-int-or-string": True, "maxLength": 255}
    if "anyOf" in node:
        (chosen,) = (each for each in node["anyOf"] if each.get("type") != "null")
        beside = {key: value for key, value in node.items() if key not in {"anyOf", "default"}}
        return _convert({**chosen, **beside}, named, with_defaults)
    found = {key: node[key] for key in _KEPT if key in node and (with_defaults or key != "default")}
    found |= {key: value for key, value in node.items() if key.startswith("x-kubernetes-")}
    _convert_inside(node, found, named, with_defaults)
    return _ordered(found)


def _convert_inside(node: Schema, found: Schema, named: Schema, with_defaults: bool) -> None:
    if "properties" in node:
        properties = {key: _convert(each, named, with_defaults) for key, each in node["properties"].items()}
        if with_defaults:
            _give_defaults(properties, node)
        found["properties"] = properties
        if "required" in node:
            found["required"] = node["required"]
    if "items" in node:
        found["items"] = _convert(node["items"], named, with_defaults)
    if isinstance(node.get("additionalProperties"), dict) and PRESERVE not in found:
        found["additionalProperties"] = _convert(node["additionalProperties"], named, with_defaults)


def _give_defaults(properties: Schema, node: Schema) -> None:
    """Set an object's default to that of its fields, if it may be absent: rules run on it too."""
    for key, each in properties.items():
        may_be_null = "anyOf" in node["properties"][key]
        if each.get("type") == "object" and key not in node.get("required", ()) and not may_be_null:
            inside = each.get("properties", {})
            each.setdefault("default", {name: inner["default"] for name, inner in inside.items() if "default" in inner})
            properties[key] = _ordered(each)


def _ordered(schema: Schema) -> Schema:
    """Return the schema with the most important keys first."""
    last = ("default", "required", "properties", "items", "additionalProperties", VALIDATIONS)
    first = {key: value for key, value in schema.items() if key not in last}
    return first | {key: schema[key] for key in last if key in schema}


def rendered(kind: Kind) -> str:
    """Return the chart's file of a kind."""
    return guarded(crd(kind))


def guarded(manifest: Schema) -> str:
    """Return the chart's file: kept when the chart is uninstalled, and left out where another release has the kind."""
    name = manifest["metadata"]["name"]
    manifest["metadata"]["annotations"] = {"helm.sh/resource-policy": "keep"}
    text: str = yaml.safe_dump(manifest, sort_keys=False, width=110, allow_unicode=True)
    if "{{" in text:
        raise ValueError(f"the CRD of {name} holds template marks, which Helm would read")
    guard = f'{{{{- if eq "own" (include "penstock-operator.kind" (list "{name}" .)) }}}}\n'
    return f"{GENERATED}\n{guard}{text}{{{{- end }}}}\n"


def names() -> str:
    """Return the chart's list of the kinds, for what it says of them."""
    kinds = " ".join(sorted([SHARD_CRD, *(kind.crd_name for kind in KINDS.values())]))
    comment = f"{{{{- /* {GENERATED.removeprefix('# ')} */ -}}}}"
    return f'{comment}\n{{{{- define "penstock-operator.kinds" -}}}}{kinds}{{{{- end -}}}}\n'


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / NAMES).write_text(names())
    for kind in KINDS.values():
        (folder / f"{kind.plural}.yaml").write_text(rendered(kind))
    (folder / f"{SHARDS}.yaml").write_text(guarded(shard_crd()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
