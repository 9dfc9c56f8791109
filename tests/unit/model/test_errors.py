"""Errors: their texts name the thing, the rule and the remedy, and their data is machine-readable."""

from penstock.model.errors import (
    FaultError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
    StorageError,
    Thing,
)

QUEUE = Thing("queue", "a", "/")


def test_a_text_names_the_thing_the_rule_and_the_way_out() -> None:
    error = PreconditionFailedError(QUEUE, "holds 12 messages", "delete with if_empty=false to drop them")

    assert str(error) == "queue 'a' in vhost '/' holds 12 messages; delete with if_empty=false to drop them"


def test_a_mismatch_carries_the_field_and_both_values() -> None:
    error = PreconditionFailedError.mismatch(QUEUE, "durable", "false", "true")

    assert (error.field, error.wanted, error.found) == ("durable", "false", "true")
    assert "declared with durable true, and this declares it with false" in str(error)


def test_refusals_and_faults_are_different_families() -> None:
    assert not issubclass(StorageError, RefusedError)
    assert issubclass(StorageError, FaultError)
    assert all(issubclass(kind, RefusedError) for kind in (NotFoundError, LockedError, InvalidArgumentError))


def test_a_thing_outside_a_vhost_is_named_without_one() -> None:
    assert str(Thing("user", "anna")) == "user 'anna'"
