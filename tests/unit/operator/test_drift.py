"""Whatever others do to a child, one look puts it right, and the next one writes nothing."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_operator.desired import children, plan
from penstock_operator.desired.compare import drift, removal
from penstock_operator.engine.home import owner_of
from support.apply_fake import merged
from support.kubernetes_fake import Manifest
from support.operator_world import OperatorWorld

Path = tuple[Any, ...]
SPEC: Manifest = {
    "networkPolicy": {"enabled": True, "allowedClients": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]},
    "pdb": {"enabled": True},
    "monitoring": {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
}
# Kubernetes refuses to change these, or they are what a change is told apart by.
FIXED = frozenset(
    {"apiVersion", "kind", "name", "namespace", "uid", "serviceName", "ownerReferences", "volumeClaimTemplates"}
)


def places(value: Any, path: Path = ()) -> list[Path]:
    """Return the paths of all maps, items and values below a manifest."""
    inside: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inside = [(key, each) for key, each in value.items() if key not in FIXED]
    elif isinstance(value, list):
        inside = list(enumerate(value))
    return [path, *(found for key, each in inside for found in places(each, (*path, key)))]


def change(manifest: Manifest, path: Path, how: str) -> None:
    """Change the value at a path, as a user of kubectl does."""
    node: Any = manifest
    for step in path[:-1]:
        node = node[step]
    found = node[path[-1]]
    if how == "remove":
        del node[path[-1]]
    elif isinstance(found, dict):
        found["added"] = "x"
    elif isinstance(found, list):
        found.append(copy.deepcopy(found[0]) if found else "x")
    elif isinstance(found, str):
        node[path[-1]] = f"{found}-x"
    elif isinstance(found, int):
        node[path[-1]] = found + 1


@pytest.mark.slow
@given(st.data())
def test_a_child_that_others_changed_is_put_right_in_one_look_and_not_fought_over(data: st.DataObject) -> None:
    world = OperatorWorld()
    world.start_cluster(**SPEC)
    owner = owner_of(world.kubernetes.objects["Cluster", "default", "mq"])
    wanted = data.draw(st.sampled_from(children(owner, plan(owner))))
    path = data.draw(st.sampled_from([each for each in places(wanted) if len(each) > 1]))
    place = (wanted["kind"], "default", wanted["metadata"]["name"])
    change(world.kubernetes.objects[place], path, data.draw(st.sampled_from(["add", "remove"])))

    world.look_again()
    assert drift(wanted, world.kubernetes.objects[place]) == []

    world.kubernetes.writes.clear()
    world.look_again()
    assert world.kubernetes.writes == []


some_values = st.recursive(
    st.integers(0, 2) | st.sampled_from(["a", "b"]),
    lambda inner: st.dictionaries(st.sampled_from("xyz"), inner, max_size=3) | st.lists(inner, max_size=2),
    max_leaves=6,
)
some_maps = st.dictionaries(st.sampled_from("pqrs"), some_values, max_size=3)


@given(some_maps, some_maps)
def test_a_removal_takes_every_addition_and_nothing_that_is_wanted(wanted: Manifest, additions: Manifest) -> None:
    manifest = {"kind": "ConfigMap", "data": wanted}
    found = {"kind": "ConfigMap", "data": {**additions, **copy.deepcopy(wanted)}}

    after = merged(found, removal(manifest, found))

    assert after == manifest
