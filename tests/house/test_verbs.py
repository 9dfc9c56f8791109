"""Holds the verbs of the services to one frame.

Each says whether it changes something, and one that does is audited or is named here as one that clients repeat all the
time.
"""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_type_hints

from penstock.services import Principal, Services
from penstock.services.verbs import VERBS, Verb, changing, reading, repeated

READING = (
    "list_",
    "get",
    "read_",
    "describe_",
    "watch_",
    "open_publisher",
    "open_consumer",
    "open_reader",
    "publish",
    "settle",
)
NOT_AUDITED = {
    "declare_exchange",
    "declare_queue",
    "bind",
    "declare_stream",
    "store_offset",
    "reserve_lease",
    "ack_leases",
    "open_stage",
}
NO_PRINCIPAL = {
    "log_in",
    "renew_log_in",
    "names_user",
    "keep",
    "end",
    "end_queues",
    "queue_unused",
    "other_leader",
    "check_leader",
}
"""Steps before there is a principal, about a connection, on the report of the engine, or by the configuration."""
SECRETS = {"password", "text", "json", "password_hash", "credentials", "columns"}


def verbs(service: type) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, verb in vars(service).items():
        if inspect.iscoroutinefunction(verb) and not name.startswith("_"):
            yield name, verb


def services() -> list[type]:
    hints = get_type_hints(Services)
    return [hints[field.name] for field in fields(Services)]


def problems(service: type, marks: dict[str, Verb] = VERBS) -> list[str]:
    found = ((verb.__qualname__, problem_of(name, verb, marks)) for name, verb in verbs(service))
    return [f"{name} {problem}" for name, problem in found if problem]


def problem_of(name: str, verb: Callable[..., Any], marks: dict[str, Verb]) -> str:
    if name in NO_PRINCIPAL:
        return ""
    parameters = list(inspect.signature(verb).parameters.values())
    if len(parameters) < 2 or parameters[1].annotation is not Principal:
        return "takes no principal"
    mark = marks.get(verb.__qualname__)
    if mark is None:
        return "is not marked as a verb that reads or changes"
    if not mark.is_changing and not name.startswith(READING):
        return "does not read by its name, and is marked so"
    if mark.is_changing and not mark.is_audited and name not in NOT_AUDITED:
        return "changes something and is not audited"
    secrets = {part for path in mark.fields for part in path.split(".")} & SECRETS
    return f"logs {sorted(secrets)}" if secrets else ""


def test_every_verb_takes_a_principal_and_one_that_changes_something_is_audited() -> None:
    assert [problem for service in services() for problem in problems(service)] == []


def test_the_exceptions_are_verbs_that_are_there() -> None:
    names = {name for service in services() for name, _ in verbs(service)}

    assert (NOT_AUDITED | NO_PRINCIPAL) - names == set()


def test_an_audited_event_is_one_verb_s_and_is_named_like_it() -> None:
    events = {verb.event: name.rpartition(".")[2] for name, verb in VERBS.items() if verb.is_audited}
    named = {"".join(word.capitalize() for word in name.split("_")) for name in events.values()}

    assert len(events) == sum(verb.is_audited for verb in VERBS.values())
    # Older names, which people search logs for.
    assert set(events) ^ named == {"Backup", "MakeBackup", "RefreshToken", "RenewToken"}


class Wrong:
    """Verbs that the test above must find."""

    async def unmarked(self, principal: Principal) -> None: ...

    @reading
    async def erase(self, principal: Principal) -> None: ...

    @repeated
    async def rename(self, principal: Principal) -> None: ...

    @changing("Anonymous")
    async def anonymous(self, principal: Principal) -> None: ...

    @changing("PutSecret", "password")
    async def put_secret(self, principal: Principal, password: str) -> None: ...

    async def outsider(self) -> None: ...


def test_a_verb_that_is_not_audited_is_found() -> None:
    marks = {name: mark for name, mark in VERBS.items() if name.startswith("Wrong.")}

    assert problems(Wrong, marks) == [
        "Wrong.unmarked is not marked as a verb that reads or changes",
        "Wrong.erase does not read by its name, and is marked so",
        "Wrong.rename changes something and is not audited",
        "Wrong.put_secret logs ['password']",
        "Wrong.outsider takes no principal",
    ]
