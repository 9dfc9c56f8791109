"""Differences between a manifest and the actual object, and the times of conditions."""

import pytest

from penstock_operator.desired.compare import differences, quantity
from penstock_operator.desired.conditions import Says, merged


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"a": 1}, {"a": 1, "b": 2}),
        ({"cpu": "1000m", "memory": "1024Mi"}, {"cpu": "1", "memory": "1Gi"}),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": [{"name": "B"}, {"name": "A", "value": "1", "more": 0}]}),
        ({"annotations": {}}, {}),
        ({"tolerations": []}, {"tolerations": None}),
    ],
)
def test_what_others_added_and_what_the_server_rewrote_is_no_difference(wanted: object, found: object) -> None:
    assert differences(wanted, found) == []


@pytest.mark.parametrize(
    ("wanted", "found", "paths"),
    [
        ({"a": {"b": 1}}, {"a": {"b": 2}}, ["a.b"]),
        ({"a": 1}, {}, ["a"]),
        ({"memory": "1Gi"}, {"memory": "1G"}, ["memory"]),
        ({"env": [{"name": "A", "value": "1"}]}, {"env": []}, ["env[A]"]),
        ({"drop": ["ALL"]}, {"drop": ["ALL", "x"]}, ["drop"]),
        ({"on": True}, {"on": 1}, []),
    ],
)
def test_what_differs_is_named_by_its_path(wanted: object, found: object, paths: list[str]) -> None:
    assert differences(wanted, found) == paths


def test_quantities_are_numbers_and_truths_are_not() -> None:
    assert quantity("1500m") == quantity("1.5")
    assert quantity(True) is None
    assert quantity("fast") is None


def test_a_condition_keeps_its_time_until_its_status_changes() -> None:
    first = merged([], [Says("Ready", "False", "Starting")], 1, "t1")
    second = merged(first, [Says("Ready", "False", "Crashes", "why")], 2, "t2")
    third = merged(second, [Says("Ready", "True", "Serving")], 2, "t3")

    assert [each[0]["lastTransitionTime"] for each in (first, second, third)] == ["t1", "t1", "t3"]
    assert second[0]["observedGeneration"] == 2
    assert merged(third, [Says("Ready", "True", "Serving")], 2, "t4") == third
