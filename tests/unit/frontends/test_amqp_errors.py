"""The table from errors to reply codes, and the texts that AMQP's clients know."""

import pytest

from penstock.frontends.amqp.errors import TABLE, refusal_of, refusal_of_a_bug
from penstock.model import errors
from penstock.model.errors import (
    AccessRefusedError,
    DiskFullError,
    FaultError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
    StorageError,
    Thing,
)

QUEUE = Thing("queue", "jobs", "/")


def test_every_refusal_and_fault_has_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    roots = [kind for kind in kinds if issubclass(kind, RefusedError | FaultError)]

    assert [kind for kind in roots if not any(parent in TABLE for parent in kind.__mro__)] == []


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NotFoundError(QUEUE), 404, "no queue 'jobs' in vhost '/'"),
        (NotFoundError(Thing("vhost", "v")), 404, "vhost v not found"),
        (
            AccessRefusedError.access("bob", Thing("vhost", "/"), "ask"),
            403,
            "access to vhost '/' refused for user 'bob'",
        ),
        (
            PreconditionFailedError.mismatch(QUEUE, "durable", "false", "true"),
            406,
            "inequivalent arg 'durable' for queue 'jobs' in vhost '/': received 'false' but current is 'true'",
        ),
        (
            PreconditionFailedError.mismatch(QUEUE, "arguments.x-message-ttl", "1", "2"),
            406,
            "inequivalent arg 'x-message-ttl' for queue 'jobs' in vhost '/': received '1' but current is '2'",
        ),
        (
            PreconditionFailedError.mismatch(Thing("exchange", "x", "/"), "type", "topic", "direct"),
            406,
            "inequivalent arg 'type' for exchange 'x' in vhost '/': received 'topic' but current is 'direct'",
        ),
        (
            InvalidArgumentError(QUEUE, "must not be negative", "wait", field="arguments.x-expires"),
            406,
            "invalid arg 'x-expires' for queue 'jobs' in vhost '/': must not be negative",
        ),
        (PreconditionFailedError(QUEUE, "is in use", "wait"), 406, "queue 'jobs' in vhost '/' is in use; wait"),
        (StorageError(QUEUE, "cannot be stored", "look"), 541, "queue 'jobs' in vhost '/' cannot be stored; look"),
        (DiskFullError(QUEUE, "has no space", "wait"), 506, "queue 'jobs' in vhost '/' has no space; wait"),
    ],
)
def test_an_error_has_a_reply_code_and_a_text(error: RefusedError | FaultError, code: int, text: str) -> None:
    refusal = refusal_of(error)

    assert (refusal.code, refusal.text, refusal.details) == (code, text, code.to_bytes(2, "big"))


def test_a_queue_of_another_connection_is_locked() -> None:
    refusal = refusal_of(LockedError(QUEUE))

    assert refusal.code == 405
    assert refusal.text.startswith("cannot obtain exclusive access to locked queue 'jobs' in vhost '/'.")


def test_a_queue_that_is_declared_again_with_another_exclusive_is_locked() -> None:
    """RabbitMQ's answer. It was 406 with the words for other arguments, which clients do not expect."""
    refusal = refusal_of(PreconditionFailedError.mismatch(QUEUE, "exclusive", "false", "true"))

    assert (refusal.code, refusal.text) == (405, refusal_of(LockedError(QUEUE)).text)


def test_the_text_of_a_bug_says_nothing() -> None:
    assert refusal_of_a_bug().text == "internal error of the broker; see its log"
    assert refusal_of_a_bug().kind == "bug"
