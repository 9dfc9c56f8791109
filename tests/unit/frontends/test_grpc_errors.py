"""Every error of the model has a status, and machine-readable details."""

import inspect

import pytest
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, PreconditionFailure, QuotaFailure, ResourceInfo
from google.rpc.status_pb2 import Status

from penstock.frontends.grpc.errors import TABLE, refusal_of
from penstock.model import errors
from penstock.model.errors import Thing

QUEUE = Thing("queue", "a", "/")
MISMATCH = errors.PreconditionFailedError.mismatch(QUEUE, "durable", "true", "false")
BAD_ARGUMENT = errors.InvalidArgumentError(QUEUE, "rule", "way", field="x-durability")
ALL = [
    (errors.NotFoundError(QUEUE), 5, "NOT_FOUND"),
    (errors.AccessRefusedError(QUEUE, "rule", "way"), 7, "ACCESS_REFUSED"),
    (errors.NotAuthenticatedError("anna"), 16, "NOT_AUTHENTICATED"),
    (MISMATCH, 9, "PRECONDITION_FAILED"),
    (errors.LockedError(QUEUE), 9, "RESOURCE_LOCKED"),
    (BAD_ARGUMENT, 3, "INVALID_ARGUMENT"),
    (errors.TooLargeError(QUEUE, "rule", size=2, size_max=1), 3, "TOO_LARGE"),
    (errors.LimitReachedError(QUEUE, "rule", limit=1), 8, "LIMIT_REACHED"),
    (errors.StorageError(QUEUE, "rule", "way"), 14, "STORAGE_FAULT"),
    (errors.NotWrittenError(QUEUE, "rule", "way"), 14, "STORAGE_FAULT"),
    (errors.FileClosedError(QUEUE, "rule", "way"), 14, "STORAGE_FAULT"),
    (errors.StoppedError(QUEUE, "cause"), 14, "STOPPED"),
]


def details(refusal):
    status = Status.FromString(refusal.details)
    assert (status.code, status.message) == (refusal.code, refusal.message)
    found = {}
    for kind in (ErrorInfo, ResourceInfo, PreconditionFailure, BadRequest, QuotaFailure):
        for packed in status.details:
            assert isinstance(packed, Any)
            message = kind()
            if packed.Unpack(message):
                found[kind] = message
    return found


@pytest.mark.parametrize(("error", "code", "reason"), ALL, ids=lambda value: getattr(value, "__class__", str).__name__)
def test_an_error_has_its_code_its_reason_and_its_thing(error, code, reason):
    refusal = refusal_of(error)
    found = details(refusal)

    assert refusal.code == code
    assert refusal.message == str(error)
    assert (found[ErrorInfo].reason, found[ErrorInfo].domain) == (reason, "penstock")
    assert found[ResourceInfo].resource_name == error.thing.name
    assert found[ErrorInfo].metadata["kind"] == error.thing.kind


def test_no_error_of_the_model_is_without_a_row():
    kinds = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, errors.RefusedError | errors.FaultError)
    }

    assert kinds == set(TABLE)


def test_a_mismatch_names_the_field_and_both_values():
    found = details(refusal_of(MISMATCH))

    assert found[PreconditionFailure].violations[0].type == "durable"
    metadata = found[ErrorInfo].metadata
    assert (metadata["field"], metadata["wanted"], metadata["found"]) == ("durable", "true", "false")


def test_a_bad_argument_names_its_field():
    assert details(refusal_of(BAD_ARGUMENT))[BadRequest].field_violations[0].field == "x-durability"
