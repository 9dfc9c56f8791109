"""The audit log of administrative actions: who did what to which thing, and never a secret."""

import json
from typing import Any

import pytest
import structlog

from penstock.services.audit import SUBJECT_CHARACTERS_MAX
from penstock.v1 import admin_pb2 as admin
from support.grpc_fakes import FakeCall, World, basic, play


def told(*calls):
    """Return the lines of these calls, without those of the log-ins before them."""
    return [line for line in all_told(*calls) if line["event"] != "LogIn"]


def all_told(*calls):
    found: list[Any] = []

    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as lines:
            for method, request, user in calls:
                payload = request.SerializeToString()
                await world.ask(FakeCall(method=method, payload=payload, authorization=basic(user), peer="10.0.0.1:9"))
        found.extend(line for line in lines if line.get("logger_name") == "audit")

    play(scenario)
    return found


def test_an_action_is_told_with_who_and_what() -> None:
    (line,) = told(("PutUser", admin.PutUserRequest(name="anna", password="a secret", tags=["monitoring"]), "admin"))

    assert (line["event"], line["user"], line["peer"], line["outcome"]) == ("PutUser", "admin", "10.0.0.1:9", "done")
    assert line["about"] == {"name": "anna", "tags": ["monitoring"]}


def test_what_was_tried_in_vain_is_told_too() -> None:
    (line,) = told(("DeleteVhost", admin.DeleteVhostRequest(name="/"), "reader"))

    assert (line["outcome"], line["user"], line["log_level"]) == ("refused", "reader", "info")
    assert "administrator" in line["refusal"]


def test_no_secret_is_told() -> None:
    document = json.dumps({"users": [{"name": "x", "password_hash": "a hash of a secret"}]}).encode()
    lines = told(
        ("PutUser", admin.PutUserRequest(name="anna", password="a secret"), "admin"),
        ("PutUser", admin.PutUserRequest(name="anna", password="a secret"), "reader"),
        ("ImportDefinitions", admin.ImportDefinitionsRequest(json=document), "admin"),
        ("ExportDefinitions", admin.ExportDefinitionsRequest(), "admin"),
    )

    assert len(lines) == 4
    assert "secret" not in repr(lines)


def test_reading_is_not_told() -> None:
    assert told(("ListUsers", admin.ListUsersRequest(), "admin")) == []


def test_a_user_is_told_once_a_connection_when_they_log_in() -> None:
    listing = ("ListVhosts", admin.ListVhostsRequest(), "admin")
    lines = all_told(listing, listing, ("ListVhosts", admin.ListVhostsRequest(), "reader"))

    assert [(line["event"], line["user"], line["peer"]) for line in lines] == [
        ("LogIn", "admin", "10.0.0.1:9"),
        ("LogIn", "reader", "10.0.0.1:9"),
    ]


def test_a_policy_is_told_with_its_definition() -> None:
    request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern="^none$"))
    request.policy.definition["alternate-exchange"].string_value = "others"
    (line,) = told(("SetPolicy", request, "admin"))

    assert line["outcome"] == "done"
    assert line["about"]["definition"] == {"alternate-exchange": "others"}


def test_a_long_subject_is_cut() -> None:
    request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern="x" * 100_000))
    (line,) = told(("SetPolicy", request, "admin"))

    assert len(line["about"]) == SUBJECT_CHARACTERS_MAX


@pytest.mark.parametrize(
    ("method", "request_", "about"),
    [
        (
            "DeleteQueue",
            admin.DeleteQueueRequest(name="q"),
            {"vhost": "/", "name": "q", "if_unused": False, "if_empty": False},
        ),
        ("PurgeQueue", admin.PurgeQueueRequest(name="q"), {"vhost": "/", "name": "q"}),
        ("DeleteExchange", admin.DeleteExchangeRequest(name="e"), {"vhost": "/", "name": "e", "if_unused": False}),
        (
            "Unbind",
            admin.UnbindRequest(binding=admin.Binding(source="e", destination="q")),
            {"vhost": "/", "binding": {"source": "e", "destination_kind": "queue", "destination": "q"}},
        ),
    ],
)
def test_deletes_and_purges_are_told(method, request_, about) -> None:
    (line,) = told((method, request_, "admin"))

    assert line["event"] == method
    assert line["about"] == about


def test_arguments_that_json_does_not_have_are_logged_as_text() -> None:
    request = admin.UnbindRequest(binding=admin.Binding(source="e", destination="q", routing_key="k"))
    request.binding.arguments["bytes"].bytes_value = b"\xff\x00a"
    request.binding.arguments["list"].array_value.items.add(timestamp_value=7)
    (line,) = told(("Unbind", request, "admin"))

    arguments = json.loads(json.dumps(line["about"]))["binding"]["arguments"]
    assert arguments == {"bytes": "\\xff\x00a", "list": [{"seconds": 7}]}


def test_limits_are_logged_as_numbers() -> None:
    request = admin.SetVhostLimitsRequest(limits=admin.VhostLimits(queues_max=5))
    (line,) = told(("SetVhostLimits", request, "admin"))

    assert line["about"] == {"vhost": "/", "limits": {"queues_max": 5}}
