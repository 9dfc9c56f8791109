"""The table of decisions about the thing of an object: what is found, who owns it, what happens."""

from typing import Any

import pytest

from penstock_operator.api import ExchangeSpec, PermissionSpec, QueueSpec, TopologySpec, UserSpec, VHostSpec
from penstock_operator.desired.ownership import Mark, Owned, Put, Refuse, Remove, Tell, Unmark, plan, plan_removal
from penstock_operator.desired.topology import wanted

NOT_OURS = Owned()
MARKED = Owned(is_marked=True)
MADE = Owned(is_marked=True, was_made=True, is_known=True)
CHANGED = Owned(is_marked=True, was_made=True)
GIVEN_UP = Owned(was_made=True, is_known=True)
OF = {"clusterRef": {"name": "mq"}}


def queue(**fields: Any) -> QueueSpec:
    return QueueSpec.model_validate({**OF, "name": "q", **fields})


def user(**fields: Any) -> UserSpec:
    return UserSpec.model_validate({**OF, "name": "u", **fields})


def found(spec: TopologySpec, **other: Any) -> dict[str, Any]:
    return {**wanted(spec), **other}


OTHER_QUEUE = found(queue(), durable=False)
OTHER_USER = found(user(), tags=["monitoring"])
EQUAL_QUEUE, EQUAL_USER = found(queue()), found(user())

# The manifest, the broker's fields, the ownership, whether the password fits -> the actions by name.
TABLE: list[tuple[str, TopologySpec, dict[str, Any] | None, Owned, bool, list[str]]] = [
    ("absent, new", queue(), None, NOT_OURS, True, ["Mark", "Put", "Created"]),
    ("absent, died before the put", queue(), None, MARKED, True, ["Put", "Created"]),
    ("absent, was made", queue(), None, MADE, True, ["Put", "DriftRepaired"]),
    ("absent, was given up", queue(), None, GIVEN_UP, True, ["Mark", "Put", "DriftRepaired"]),
    ("absent, was made, no updates", queue(preventUpdate=True), None, MADE, True, ["Drift"]),
    ("absent, new, no updates", queue(preventUpdate=True), None, NOT_OURS, True, ["Mark", "Put", "Created"]),
    ("absent, new, no adoption", queue(adopt=False), None, NOT_OURS, True, ["Mark", "Put", "Created"]),
    ("equal, foreign", queue(), EQUAL_QUEUE, NOT_OURS, True, ["Mark", "Adopted"]),
    ("equal, foreign, no updates", queue(preventUpdate=True), EQUAL_QUEUE, NOT_OURS, True, ["Mark", "Adopted"]),
    ("equal, foreign, no adoption", queue(adopt=False), EQUAL_QUEUE, NOT_OURS, True, ["Exists"]),
    ("equal, ours, no adoption", queue(adopt=False), EQUAL_QUEUE, MADE, True, []),
    ("equal, ours", queue(), EQUAL_QUEUE, MADE, True, []),
    ("equal, died before the status", queue(), EQUAL_QUEUE, MARKED, True, []),
    ("another queue, foreign", queue(), OTHER_QUEUE, NOT_OURS, True, ["Mismatch"]),
    ("another queue, ours before", queue(), OTHER_QUEUE, MADE, True, ["Unmark", "Mismatch"]),
    ("another queue, foreign, no updates", queue(preventUpdate=True), OTHER_QUEUE, NOT_OURS, True, ["Drift"]),
    ("another queue, ours, no updates", queue(preventUpdate=True), OTHER_QUEUE, MADE, True, ["Unmark", "Drift"]),
    ("another queue, no adoption", queue(adopt=False), OTHER_QUEUE, NOT_OURS, True, ["Exists"]),
    ("differing user, foreign", user(), OTHER_USER, NOT_OURS, True, ["Mark", "Put", "Adopted"]),
    ("differing user, ours", user(), OTHER_USER, MADE, True, ["Put", "DriftRepaired"]),
    ("differing user, manifest changed", user(), OTHER_USER, CHANGED, True, ["Put", "Updated"]),
    ("differing user, foreign, no updates", user(preventUpdate=True), OTHER_USER, NOT_OURS, True, ["Drift"]),
    ("differing user, ours, no updates", user(preventUpdate=True), OTHER_USER, MADE, True, ["Drift"]),
    ("other password, foreign", user(), EQUAL_USER, NOT_OURS, False, ["Mark", "Put", "Adopted"]),
    ("other password, ours", user(), EQUAL_USER, MADE, False, ["Put", "DriftRepaired"]),
    ("other password, foreign, no updates", user(preventUpdate=True), EQUAL_USER, NOT_OURS, False, ["Drift"]),
    ("other password, ours, no updates", user(preventUpdate=True), EQUAL_USER, MADE, False, ["Drift"]),
    ("other password, no adoption", user(adopt=False), EQUAL_USER, NOT_OURS, False, ["Exists"]),
]


def named(action: object) -> str:
    match action:
        case Tell(reason, _) | Refuse(reason, _, _):
            return reason
    return type(action).__name__


@pytest.mark.parametrize(
    ("spec", "fields", "owned", "fits", "actions"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_the_plan(
    spec: TopologySpec, fields: dict[str, Any] | None, owned: Owned, fits: bool, actions: list[str]
) -> None:
    assert [named(each) for each in plan(spec, fields, owned, has_password=fits)] == actions


@pytest.mark.parametrize("row", TABLE, ids=[row[0] for row in TABLE])
def test_a_refused_thing_is_not_touched_and_a_touched_one_is_marked_before(row: tuple[Any, ...]) -> None:
    _, spec, fields, owned, fits, _ = row
    kinds = [type(each) for each in plan(spec, fields, owned, has_password=fits)]

    assert not (Refuse in kinds and (Put in kinds or Mark in kinds))
    assert Put not in kinds or owned.is_marked or kinds.index(Mark) < kinds.index(Put)
    assert not (Put in kinds and fields is not None and spec.prevent_update)
    assert Unmark not in kinds or owned.is_marked


@pytest.mark.parametrize(
    ("spec", "fields", "expected"),
    [
        (queue(), None, []),
        (queue(), EQUAL_QUEUE, ["Remove"]),
        (queue(), OTHER_QUEUE, ["LeftOnBroker"]),
        (user(), OTHER_USER, ["Remove"]),
        (PermissionSpec.model_validate({**OF, "user": "u"}), {"configure": "x", "write": "", "read": ""}, ["Remove"]),
        (VHostSpec.model_validate({**OF, "name": "v"}), {"limits": {}}, ["Remove"]),
        (VHostSpec.model_validate({**OF, "name": "/"}), {"limits": {}}, ["LeftOnBroker"]),
    ],
)
def test_the_plan_of_a_removal(spec: TopologySpec, fields: dict[str, Any] | None, expected: list[str]) -> None:
    actions = plan_removal(spec, fields)

    assert [named(each) for each in actions] == expected
    assert all(isinstance(each, Remove | Tell) for each in actions)


def test_a_refusal_names_the_fields() -> None:
    spec = ExchangeSpec.model_validate({**OF, "name": "e", "type": "topic", "arguments": {"a": 1}})

    (refusal,) = plan(spec, found(spec, type="fanout", arguments={"b": 2}), NOT_OURS)

    assert isinstance(refusal, Refuse)
    assert refusal.drift == ("type", "arguments.a", "arguments.b")
    assert "type is 'fanout' there and 'topic' here" in refusal.message
