"""Finds fields of manifests that the oldest supported Kubernetes does not know.

Its API server would refuse or drop them. The known fields are in tests/operator/kubernetes-1.31.json, taken from that
version's published schema. Kinds of other API groups are skipped.

    helm template charts/penstock | python tools/check_fields.py
    python tools/check_fields.py --extract swagger.json > tests/operator/kubernetes-1.31.json
"""

import json
import sys
from pathlib import Path
from typing import Any

import yaml

OLDEST = "1.31"
KNOWN = Path(__file__).resolve().parents[1] / "tests" / "operator" / f"kubernetes-{OLDEST}.json"
# Kinds that the charts and the operator make.
KINDS = (
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
    "apps/v1/Deployment",
    "apps/v1/StatefulSet",
    "networking.k8s.io/v1/NetworkPolicy",
    "policy/v1/PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1/ClusterRole",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1/Role",
    "rbac.authorization.k8s.io/v1/RoleBinding",
    "storage.k8s.io/v1/StorageClass",
    *(f"v1/{kind}" for kind in ("ConfigMap", "PersistentVolume", "Secret", "Service", "ServiceAccount")),
)
# API groups of others, and ours.
OTHERS = frozenset({"cert-manager.io", "monitoring.coreos.com", "penstock.dev"})
# A type is its fields, each with its type; "" is a plain value, and "{}" before a type a map of it.
Types = dict[str, dict[str, str]]


def unknown(manifest: dict[str, Any]) -> list[str]:
    """Return the paths of unknown fields, below the kind.

    Raises KeyError for one of Kubernetes' own kinds that the list above lacks.
    """
    known = json.loads(KNOWN.read_text())
    kind = f"{manifest['apiVersion']}/{manifest['kind']}"
    if manifest["apiVersion"].split("/")[0] in OTHERS:
        return []
    return [f"{kind}: {path}" for path in _unknown(manifest, known["kinds"][kind], known["types"])]


def _unknown(value: Any, type_: str, types: Types, path: str = "") -> list[str]:
    if isinstance(value, list):
        return [each for item in value for each in _unknown(item, type_, types, path)]
    if not isinstance(value, dict) or not type_:
        return []
    if type_.startswith("{}"):
        inside = type_.removeprefix("{}")
        return [each for key, item in value.items() for each in _unknown(item, inside, types, f"{path}.{key}")]
    fields = types[type_]
    if not fields:
        return []
    found = [f"{path}.{key}" for key in value if key not in fields]
    return found + [
        each for key in value if key in fields for each in _unknown(value[key], fields[key], types, f"{path}.{key}")
    ]


def extracted(swagger: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a published schema that the kinds above use."""
    definitions: dict[str, Any] = swagger["definitions"]
    kinds: dict[str, str] = {}
    for name, definition in definitions.items():
        for each in definition.get("x-kubernetes-group-version-kind", ()):
            version = f"{each['group']}/{each['version']}".removeprefix("/")
            if f"{version}/{each['kind']}" in KINDS:
                kinds[f"{version}/{each['kind']}"] = name
    types: Types = {}
    waiting = list(kinds.values())
    while waiting:
        name = waiting.pop()
        if name not in types:
            types[name] = {field: _type_of(of) for field, of in definitions[name].get("properties", {}).items()}
            waiting += [each.removeprefix("{}") for each in types[name].values() if each]
    return {"kinds": dict(sorted(kinds.items())), "types": dict(sorted(types.items()))}


def _type_of(field: dict[str, Any]) -> str:
    if "$ref" in field:
        return str(field["$ref"]).rsplit("/", 1)[-1]
    if "items" in field:
        return _type_of(field["items"])
    inside = _type_of(field["additionalProperties"]) if "additionalProperties" in field else ""
    return f"{{}}{inside}" if inside else ""


def main(arguments: list[str]) -> None:
    if arguments[:1] == ["--extract"]:
        found = extracted(json.loads(Path(arguments[1]).read_text()))
        lines = [f'"{name}": {json.dumps(fields)}' for name, fields in found["types"].items()]
        types = ",\n".join(lines)
        sys.stdout.write(f'{{"kinds": {json.dumps(found["kinds"], indent=1)},\n"types": {{\n{types}\n}}}}\n')
        return
    documents = [each for each in yaml.safe_load_all(sys.stdin) if each]
    problems = [problem for each in documents for problem in unknown(each)]
    if problems:
        sys.exit(f"not in Kubernetes {OLDEST}:\n" + "\n".join(problems))


if __name__ == "__main__":
    main(sys.argv[1:])
