"""Every command, record and answer is the same after it was bytes; other bytes are refused."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Union, cast, get_args, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.meta.answers import RESPONSES, Answered, Refusal, error_of, refusal_of
from penstock.cluster.meta.changes import Record, VhostChanged
from penstock.cluster.meta.codec import RECORDS, REQUESTS, CodecError
from penstock.cluster.meta.commands import InVhost, Joined, Request, SessionEndedError
from penstock.metadata.commands import DeclareQueue, DeleteQueue
from penstock.metadata.effects import Done, PersistDefaultQueueType
from penstock.metadata.policies import Policy
from penstock.model.arguments import Arguments
from penstock.model.errors import (
    AccessRefusedError,
    LimitReachedError,
    LockedError,
    NotFoundError,
    PreconditionFailedError,
    RefusedError,
    Thing,
    TooLargeError,
)
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.model.records import QueueKind
from support.argument_strategies import arguments_of, texts, values_with

any_arguments = arguments_of(values_with(st.floats(allow_nan=False)))
PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    int: st.integers(-(2**63), 2**64),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    NoneType: st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return any values of a type, by its fields."""
    while hasattr(kind, "__supertype__"):
        kind = kind.__supertype__
    if kind == Arguments:
        return any_arguments
    if kind is Policy:
        return st.builds(Policy, texts, st.sampled_from(["", "^a", "b$"]), any_arguments)
    if kind in PLAIN:
        return PLAIN[kind]
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, parts))
    if origin is tuple:
        return st.lists(values_of(parts[0]), max_size=2).map(tuple)
    if origin in (dict, Mapping):
        return st.dictionaries(texts, values_of(parts[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(list(kind))
    maker: Any = kind
    assert is_dataclass(maker)
    hints: dict[str, Any] = {each.name: each.type for each in fields(maker) if each.init}
    return st.deferred(lambda: st.builds(cast(Any, kind), **{name: values_of(hint) for name, hint in hints.items()}))


@given(values_of(Request))
def test_every_request_is_the_same_after_it_was_bytes(request: Request) -> None:
    assert REQUESTS.decode(REQUESTS.encode(request)) == request


@given(values_of(Record))
def test_every_record_is_the_same_after_it_was_bytes(record: Record) -> None:
    content = RECORDS.encode(record)

    assert RECORDS.decode(content) == record
    assert RECORDS.encode(RECORDS.decode(content)) == content


@given(values_of(Answered | Refusal))
def test_every_response_is_the_same_after_it_was_bytes(response: Answered | Refusal) -> None:
    assert RESPONSES.decode(RESPONSES.encode(response)) == response


@pytest.mark.parametrize("kind", list(QueueKind))
def test_a_default_queue_type_is_its_name_in_bytes(kind: QueueKind) -> None:
    record = Record(1, 1, 1, Done(), (VhostChanged(VhostName("/"), 0, (PersistDefaultQueueType(kind),)),))
    content = RECORDS.encode(record)

    assert f'{{"class":"PersistDefaultQueueType","kind":"{kind.value}"}}'.encode() in content
    assert RECORDS.decode(content) == record
    with pytest.raises(CodecError):
        RECORDS.decode(content.replace(f'"kind":"{kind.value}"'.encode(), b'"kind":"mirrored"'))


def test_arguments_keep_their_order() -> None:
    command = DeclareQueue(QueueName("q"), ConnectionId(1), arguments={"z": 1, "a": [True, "b"], "m": b"\0"})
    request = Request(1, 1, 1, InVhost(VhostName("/"), command))

    found = REQUESTS.decode(REQUESTS.encode(request))

    assert isinstance(found.command, InVhost)
    assert isinstance(found.command.command, DeclareQueue)
    assert list(found.command.command.arguments.items()) == [("z", 1), ("a", [True, "b"]), ("m", b"\0")]


REQUEST = Request(1, 2, 1, InVhost(VhostName("/"), DeleteQueue(QueueName("q"), ConnectionId(1))))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        REQUESTS.encode(REQUEST)[:-1],
        REQUESTS.encode(REQUEST).replace(b"DeleteQueue", b"DeleteNothing"),
        REQUESTS.encode(REQUEST).replace(b'"session":1', b'"session":"1"'),
        REQUESTS.encode(REQUEST).replace(b'"session":1', b'"session":true'),
        REQUESTS.encode(REQUEST).replace(b'"session":1', b'"session":1,"more":1'),
        REQUESTS.encode(REQUEST).replace(b'"if_empty":false', b'"if_empty":0'),
        REQUESTS.encode(REQUEST).replace(b'"if_empty":false,', b""),
        RECORDS.encode(Record(1, 1, 1, Done(), ())),
    ],
)
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(CodecError):
        REQUESTS.decode(content)


@pytest.mark.parametrize("arguments", [["*"], ["AA=="], "AA==", [1]])
def test_arguments_that_are_no_tables_are_refused(arguments: object) -> None:
    request = Request(1, 2, 1, InVhost(VhostName("/"), DeclareQueue(QueueName("q"), ConnectionId(1))))
    value = json.loads(REQUESTS.encode(request))
    value["command"]["command"]["arguments"] = arguments

    with pytest.raises(CodecError):
        REQUESTS.decode(json.dumps(value).encode())


THING = Thing("queue", "q", "/")


@pytest.mark.parametrize(
    "error",
    [
        NotFoundError(THING),
        AccessRefusedError.missing_permission("bob", "configure permission", THING, "ask for it"),
        PreconditionFailedError.mismatch(THING, "arguments.x", "1", "2"),
        LockedError(THING),
        TooLargeError(THING, "has 9 bytes", size=9, size_max=8),
        LimitReachedError(THING, "would be one more", limit=3),
        SessionEndedError(7),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_refusal_is_the_same_on_another_broker(error: RefusedError) -> None:
    response = RESPONSES.decode(RESPONSES.encode(refusal_of(error)))
    assert isinstance(response, Refusal)

    found = error_of(response)

    assert type(found) is type(error)
    assert str(found) == str(error)
    assert vars(found) == vars(error)


def test_a_refusal_of_a_newer_version_keeps_its_text() -> None:
    found = error_of(Refusal("NewerError", THING, "is new", "wait", "queue 'q' is new"))

    assert type(found) is RefusedError
    assert str(found) == "queue 'q' is new; wait"


def test_an_answer_has_its_position() -> None:
    assert RESPONSES.decode(RESPONSES.encode(Answered(7, Joined(1)))) == Answered(7, Joined(1))
