"""Errors: their texts name the thing, the rule and the remedy, and their data is machine-readable."""

from penstock.model.errors import (
    AccessRefusedError,
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
    assert str(error) == (
        "queue 'a' in vhost '/' already exists with durable true, and you asked for it with durable false; "
        "declare it with durable true, or delete it first"
    )


def test_a_mismatch_says_without_where_an_argument_is_absent() -> None:
    error = PreconditionFailedError.mismatch(QUEUE, "arguments.x-durability", "'disk'", "absent")

    assert str(error) == (
        "queue 'a' in vhost '/' already exists without x-durability, and you asked for it with x-durability 'disk'; "
        "declare it without x-durability, or delete it first"
    )


def test_the_texts_of_frequent_refusals() -> None:
    missing = AccessRefusedError.missing_permission("bob", "configure permission", QUEUE, "ask an administrator")
    refused = AccessRefusedError.access("bob", Thing("vhost", "/"), "ask an administrator")

    assert str(NotFoundError(QUEUE)) == "queue 'a' in vhost '/' not found; declare it first or check the name"
    assert str(missing) == "user 'bob' has no configure permission on queue 'a' in vhost '/'; ask an administrator"
    assert missing.rule == "user 'bob' has no configure permission"
    assert str(refused) == "access to vhost '/' refused for user 'bob'; ask an administrator"


def test_refusals_and_faults_are_different_families() -> None:
    assert not issubclass(StorageError, RefusedError)
    assert issubclass(StorageError, FaultError)
    assert all(issubclass(kind, RefusedError) for kind in (NotFoundError, LockedError, InvalidArgumentError))


def test_a_thing_outside_a_vhost_is_named_without_one() -> None:
    assert str(Thing("user", "anna")) == "user 'anna'"
