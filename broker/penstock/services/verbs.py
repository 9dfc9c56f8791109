"""Common handling of all verbs.

A verb is retried after a question to another server, and a verb that changes something is audited. Each verb of a
service is marked as one of three kinds; a house test checks it.
"""

import inspect
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from penstock.identity import UndecidedError
from penstock.model.errors import FaultError, NotFoundError, RefusedError, StoppedError, Thing
from penstock.services import audit
from penstock.services.principal import Principal

QUESTIONS_MAX: Final = 8
"""The most questions of one verb to another server, one after another: a vhost, and a few things in it."""

Answer = TypeVar("Answer")
Service = TypeVar("Service")
Rest = ParamSpec("Rest")
VerbFunction = Callable[Concatenate[Service, Principal, Rest], Coroutine[Any, Any, Answer]]


@dataclass(frozen=True, slots=True)
class Verb:
    """How a verb is marked: the name of its event in the audit log, and the arguments that are logged with it."""

    event: str = ""
    fields: tuple[str, ...] = ()
    is_changing: bool = False

    @property
    def is_audited(self) -> bool:
        return self.is_changing and bool(self.event)


VERBS: Final[dict[str, Verb]] = {}
"""All verbs, by class and name."""


async def decided(
    principal: Principal, attempt: Callable[[], Awaitable[Answer]], questions_max: int = QUESTIONS_MAX
) -> Answer:
    """Return what the attempt returns.

    It is repeated each time that another server had to be asked first; it has changed nothing then. In a cluster it is
    repeated once for a name that is not found: another broker may have answered that it is there.
    """
    catch_up = principal.catch_up
    for _ in range(questions_max):
        try:
            return await attempt()
        except UndecidedError as undecided:
            await undecided.ask()
        except NotFoundError:
            if catch_up is None:
                raise
            await catch_up()
            catch_up = None
    cause = f"{questions_max} questions to another server had no lasting answer"
    raise StoppedError(Thing("permissions", principal.name), cause)


def reading(verb: VerbFunction[Service, Rest, Answer]) -> VerbFunction[Service, Rest, Answer]:
    """Mark a verb that changes nothing."""
    return _marked(verb, Verb())


def repeated(verb: VerbFunction[Service, Rest, Answer]) -> VerbFunction[Service, Rest, Answer]:
    """Mark a verb that changes something and is not audited.

    Clients repeat such a verb at each start or all the time, most often without changing anything.
    """
    return _marked(verb, Verb(is_changing=True))


def changing(
    event: str, *about: str
) -> Callable[[VerbFunction[Service, Rest, Answer]], VerbFunction[Service, Rest, Answer]]:
    """Mark a verb that changes something.

    `about` names the arguments that the audit log has, with a dot for a field of one argument.
    """

    def mark(verb: VerbFunction[Service, Rest, Answer]) -> VerbFunction[Service, Rest, Answer]:
        return _audited(_marked(verb, Verb(event, about, is_changing=True)), event, about)

    return mark


def _marked(verb: VerbFunction[Service, Rest, Answer], mark: Verb) -> VerbFunction[Service, Rest, Answer]:
    VERBS[verb.__qualname__] = mark

    @wraps(verb)
    async def run(service: Service, principal: Principal, /, *rest: Rest.args, **named: Rest.kwargs) -> Answer:
        return await decided(principal, lambda: verb(service, principal, *rest, **named))

    return run


def _audited(
    verb: VerbFunction[Service, Rest, Answer], event: str, about: tuple[str, ...]
) -> VerbFunction[Service, Rest, Answer]:
    signature = inspect.signature(verb)

    @wraps(verb)
    async def run(service: Service, principal: Principal, /, *rest: Rest.args, **named: Rest.kwargs) -> Answer:
        bound = signature.bind(service, principal, *rest, **named)
        bound.apply_defaults()
        subject = {path.rpartition(".")[2].rstrip("_"): _value(bound.arguments, path) for path in about}
        outcome, refusal = audit.Outcome.FAILED, ""
        try:
            answer = await verb(service, principal, *rest, **named)
            outcome = audit.Outcome.DONE
        except (RefusedError, FaultError) as error:
            outcome, refusal = audit.Outcome.REFUSED, str(error)
            raise
        finally:
            audit.report(event, principal, subject, outcome, refusal)
        return answer

    return run


def _value(arguments: dict[str, Any], path: str) -> object:
    name, *parts = path.split(".")
    value: object = arguments[name]
    for part in parts:
        value = getattr(value, part)
    return value
