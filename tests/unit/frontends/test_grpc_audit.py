"""The log of administrative actions: who did what to what, and never a secret."""

import json

import pytest
import structlog

from penstock.frontends.grpc.audit import AUDITED
from penstock.frontends.grpc.calls import METHODS
from penstock.v1 import admin_pb2 as admin
from support.grpc_fakes import FakeCall, World, basic, play

READING = ("Get", "List")
OF_USERS = {
    *(
        "DeclareExchange",
        "DeleteExchange",
        "DeclareQueue",
        "DeleteQueue",
        "PurgeQueue",
        "DeclareStream",
        "DeleteStream",
        "StoreOffset",
        "TrimStream",
        "DeleteGroup",
        "DeleteStage",
        "ReserveLease",
        "AckLeases",
        "Bind",
        "Unbind",
        "RefreshToken",
    )
}


def told(*calls):
    found = []

    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as lines:
            for method, request, user in calls:
                payload = request.SerializeToString()
                await world.ask(FakeCall("call", method, payload, authorization=basic(user), peer="10.0.0.1:9"))
        found.extend(line for line in lines if line.get("room") == "audit")

    play(scenario)
    return found


def test_an_action_is_told_with_who_and_what() -> None:
    (line,) = told(("PutUser", admin.PutUserRequest(name="anna", password="a secret", tags=["monitoring"]), "admin"))

    assert (line["event"], line["user"], line["peer"], line["outcome"]) == ("PutUser", "admin", "10.0.0.1:9", "done")
    assert line["about"] == {"name": "anna", "tags": ["monitoring"]}


def test_what_was_tried_in_vain_is_told_too() -> None:
    (line,) = told(("DeleteVhost", admin.DeleteVhostRequest(name="/"), "reader"))

    assert (line["outcome"], line["user"], line["log_level"]) == ("refused", "reader", "warning")
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


def test_every_method_that_changes_what_administrators_look_after_is_told() -> None:
    silent = {name for name in METHODS if not name.startswith(READING)} - OF_USERS - set(AUDITED)

    assert silent == set()


@pytest.mark.parametrize(("method", "fields"), AUDITED.items())
def test_the_fields_told_are_there_and_none_is_a_secret(method: str, fields: tuple[str, ...]) -> None:
    for field in fields:
        descriptor = METHODS[method].request.DESCRIPTOR
        for part in field.split("."):
            assert part in descriptor.fields_by_name, (method, field)
            assert part not in ("password", "json", "password_hash")
            descriptor = descriptor.fields_by_name[part].message_type
