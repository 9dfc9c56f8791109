"""Server-side apply on dictionaries: what one manager applied is its own, and additions by others stay.

A field that the manager no longer applies is removed. Lists of known items are merged by their keys, other lists and
selectors are replaced as a whole, as in Kubernetes' own schemas. Every apply is forced.
"""

import copy
from typing import Any

Manifest = dict[str, Any]
Path = tuple[Any, ...]
# Keys by which Kubernetes merges the items of a list. All other lists are atomic.
LIST_KEYS = {
    "ports": ("port", "containerPort", "protocol"),
    "containers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ownerReferences": ("uid",),
    "conditions": ("type",),
}
# Maps that an apply replaces as a whole.
ATOMIC = frozenset({"selector", "podSelector", "namespaceSelector", "nodeSelector", "secretKeyRef"})


def applied(known: Manifest, wanted: Manifest, owned: set[Path]) -> tuple[Manifest, set[Path]]:
    """Return the object after an apply, and the fields that the manager owns from then on."""
    fields = dict(_leaves(wanted, ()))
    found = copy.deepcopy(known)
    for path in owned - set(fields):
        _remove(found, path)
    for path, value in fields.items():
        _set(found, path, copy.deepcopy(value))
    return found, set(fields)


def _leaves(value: Any, path: Path) -> list[tuple[Path, Any]]:
    name = path[-1] if path else ""
    if isinstance(value, dict) and name not in ATOMIC and value:
        return [leaf for key, each in value.items() for leaf in _leaves(each, (*path, key))]
    if isinstance(value, list) and name in LIST_KEYS and value:
        return [leaf for each in value for leaf in _leaves(each, (*path, _item(name, each)))]
    return [(path, value)]


def _item(name: str, item: Manifest) -> tuple[tuple[str, Any], ...]:
    return tuple((key, item[key]) for key in LIST_KEYS[name] if key in item)


def _is_it(item: Manifest, keys: tuple[tuple[str, Any], ...]) -> bool:
    return all(item.get(key) == value for key, value in keys)


def _set(found: Manifest, path: Path, value: Any) -> None:
    node: Any = found
    for position, step in enumerate(path[:-1]):
        if isinstance(step, tuple):
            item = next((each for each in node if _is_it(each, step)), None)
            if item is None:
                item = dict(step)
                node.append(item)
            node = item
            continue
        is_list = isinstance(path[position + 1], tuple)
        if not isinstance(node.get(step), list if is_list else dict):
            node[step] = [] if is_list else {}
        node = node[step]
    node[path[-1]] = value


def _remove(node: Any, path: Path) -> None:
    """Remove a field, and the map that it leaves empty or the item that it leaves with its keys alone."""
    step, rest = path[0], path[1:]
    if isinstance(step, tuple):
        keys = {key for key, _ in step}
        for item in [each for each in node if _is_it(each, step)]:
            if rest[0] not in keys:
                _remove(item, rest)
            if set(item) <= keys:
                node.remove(item)
        return
    if step not in node:
        return
    if not rest:
        del node[step]
        return
    _remove(node[step], rest)
    if not node[step]:
        del node[step]


def merged(known: Any, change: Any) -> Any:
    """Return an object after a merge patch."""
    if not isinstance(change, dict):
        return copy.deepcopy(change)
    before = known if isinstance(known, dict) else {}
    found = {key: value for key, value in before.items() if change.get(key, value) is not None}
    for key, value in change.items():
        if value is not None:
            found[key] = merged(before.get(key), value)
    return found
