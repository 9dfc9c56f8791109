"""Finds differences between the desired and the actual state.

Desired fields are compared: defaults and additions by others stay. Where an addition changes what is selected, reached
or read, as a key in a Service's selector does, it is a difference too. Quantities are compared as numbers, as the API
server rewrites them.
"""

import re
from decimal import Decimal
from typing import Any, Final

from penstock_operator.desired.naming import RESTORE

Manifest = dict[str, Any]
# The init container of a Cluster that was restored: it is no longer wanted, and applying removes it.
RESTORED: Final = f"spec.template.spec.initContainers[{RESTORE}]"
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_UNITS = {
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_KEYS = ("name", "mountPath", "port", "type")
# Parts of children that are as they were written, or wrong.
WHOLE: Final = {
    "ConfigMap": (("data",),),
    "NetworkPolicy": (("spec",),),
    "PodDisruptionBudget": (("spec", "selector"),),
    "Service": (("spec", "selector"), ("spec", "ports")),
    "ServiceMonitor": (("spec", "selector"),),
}
# Fields that the API server fills in there.
_FILLED_IN = frozenset({"nodePort"})


def drift(wanted: Manifest, found: Manifest) -> list[str]:
    """Return the paths at which a child differs."""
    added = [where for path in WHOLE.get(wanted["kind"], ()) for where in _added_at(wanted, found, path)]
    ended = [RESTORED] if _restores(found) and not _restores(wanted) else []
    return list(dict.fromkeys([*differences(wanted, found), *added, *ended]))


def _restores(manifest: Manifest) -> bool:
    containers = _at(manifest, ("spec", "template", "spec", "initContainers"))
    return isinstance(containers, list) and any(each.get("name") == RESTORE for each in containers)


def removal(wanted: Manifest, found: Manifest) -> Manifest:
    """Return the merge patch that removes the additions which an apply leaves; empty when there are none."""
    change: Manifest = {}
    for path in WHOLE.get(wanted["kind"], ()):
        if _added_at(wanted, found, path):
            node = change
            for step in path[:-1]:
                node = node.setdefault(step, {})
            node[path[-1]] = _without_additions(_at(wanted, path), _at(found, path))
    return change


def _added_at(wanted: Manifest, found: Manifest, path: tuple[str, ...]) -> list[str]:
    return _additions(_at(wanted, path), _at(found, path), ".".join(path))


def _at(manifest: Any, path: tuple[str, ...]) -> Any:
    for step in path:
        manifest = manifest.get(step) if isinstance(manifest, dict) else None
    return manifest


def _additions(wanted: Any, found: Any, path: str) -> list[str]:
    if isinstance(wanted, dict) and isinstance(found, dict):
        extra = [f"{path}.{key}" for key in _extra(wanted, found)]
        return extra + [where for key in wanted for where in _additions(wanted[key], found.get(key), f"{path}.{key}")]
    if not isinstance(wanted, list) or not isinstance(found, list):
        return []
    key = _key_of(wanted)
    if key is None:
        pairs = enumerate(zip(wanted, found, strict=False))
        return [where for index, (one, other) in pairs for where in _additions(one, other, f"{path}[{index}]")]
    by_key = {each[key]: each for each in wanted}
    return [
        where
        for each in found
        for where in (
            _additions(by_key[each[key]], each, f"{path}[{each[key]}]")
            if isinstance(each, dict) and each.get(key) in by_key
            else [path]
        )
    ]


def _extra(wanted: Manifest, found: Manifest) -> list[str]:
    return [key for key, value in found.items() if key not in wanted and key not in _FILLED_IN and value is not None]


def _without_additions(wanted: Any, found: Any) -> Any:
    """Return a merge patch: a map's additions become None, a list is replaced."""
    if not isinstance(wanted, dict) or not isinstance(found, dict):
        return wanted
    inside = {key: _without_additions(value, found.get(key)) for key, value in wanted.items()}
    return inside | dict.fromkeys(_extra(wanted, found))


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Return the paths of desired fields that differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            where
            for key, value in wanted.items()
            for where in differences(value, found.get(key), f"{path}.{key}" if path else key)
        ]
    if isinstance(wanted, list) and isinstance(found, list):
        return _in_lists(wanted, found, path)
    return [] if wanted == found or _is_empty(wanted, found) or _is_same_quantity(wanted, found) else [path]


def _in_lists(wanted: list[Any], found: list[Any], path: str) -> list[str]:
    key = _key_of(wanted)
    if key is not None:
        by_key = {each.get(key): each for each in found if isinstance(each, dict)}
        return [where for each in wanted for where in differences(each, by_key.get(each[key]), f"{path}[{each[key]}]")]
    if len(wanted) != len(found):
        return [path]
    return [
        where
        for index, (one, other) in enumerate(zip(wanted, found, strict=True))
        for where in differences(one, other, f"{path}[{index}]")
    ]


def _key_of(items: list[Any]) -> str | None:
    """Return the key that identifies the items, if there is one."""
    if not items or not all(isinstance(each, dict) for each in items):
        return None
    return next((key for key in _KEYS if all(key in each for each in items)), None)


def _is_empty(wanted: Any, found: Any) -> bool:
    """Return whether both are empty: the API server omits empty lists and maps."""
    return found is None and wanted in ([], {})


def _is_same_quantity(wanted: Any, found: Any) -> bool:
    one, other = quantity(wanted), quantity(found)
    return one is not None and one == other


def quantity(value: Any) -> Decimal | None:
    """Return the quantity; None when it is not one."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        return None
    return Decimal(match[1]) * _UNITS.get(match[2] or "", Decimal(1))
