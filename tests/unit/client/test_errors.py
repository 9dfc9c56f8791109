"""The broker's refusals become errors of their kind, with reason and thing."""

import pytest
from google.protobuf.any_pb2 import Any
from google.rpc import error_details_pb2, status_pb2

import penstock
from penstock.client.errors import from_status


def details(*parts: object) -> bytes:
    status = status_pb2.Status()
    for part in parts:
        packed = Any()
        packed.Pack(part)  # type: ignore[arg-type]
        status.details.append(packed)
    return bytes(status.SerializeToString())


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-1, penstock.ReturnedError),
        (3, penstock.InvalidArgumentError),
        (4, penstock.DeadlineError),
        (5, penstock.NotFoundError),
        (6, penstock.AlreadyExistsError),
        (7, penstock.AccessRefusedError),
        (8, penstock.BlockedError),
        (9, penstock.PreconditionFailedError),
        (12, penstock.NotSupportedError),
        (13, penstock.BrokerError),
        (14, penstock.ConnectionLostError),
        (16, penstock.NotAuthenticatedError),
        (99, penstock.BrokerError),
    ],
)
def test_each_code_has_its_error(code: int, kind: type[penstock.PenstockError]) -> None:
    error = from_status(code, "what the broker said")

    assert type(error) is kind
    assert "what the broker said" in str(error)
    assert error.code == code


def test_a_reason_says_more_than_its_code() -> None:
    error = from_status(9, "held", details(error_details_pb2.ErrorInfo(reason="LOCKED", domain="penstock")))

    assert isinstance(error, penstock.LockedError)


def test_details_name_the_thing_and_the_rule() -> None:
    resource = error_details_pb2.ResourceInfo(resource_type="queue", resource_name="jobs")
    request = error_details_pb2.BadRequest()
    request.field_violations.add(field="durable", description="is true, not false")

    detail = from_status(9, "differs", details(resource, request)).detail

    assert (detail.resource_type, detail.resource_name) == ("queue", "jobs")
    assert detail.violations == (("durable", "is true, not false"),)


def test_unreadable_details_do_not_hide_the_message() -> None:
    assert str(from_status(5, "no queue", b"\xff\xff\xff")) == "no queue"


def test_a_message_too_large_is_told_by_its_words() -> None:
    assert isinstance(from_status(8, "the message is larger than 16777216 bytes"), penstock.TooLargeError)


def test_a_lost_connection_is_a_connection_error() -> None:
    assert isinstance(from_status(14, "gone"), ConnectionError)
