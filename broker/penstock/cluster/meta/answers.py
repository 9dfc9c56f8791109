"""Answers to requests between brokers: an answer with the position that has it, or a refusal with all its data."""

from dataclasses import dataclass, field
from typing import Final

from penstock.cluster.meta.codec import Codec
from penstock.cluster.meta.commands import MetaAnswer, SessionEndedError
from penstock.model import errors
from penstock.model.errors import RefusedError, Thing

_OWN: Final = frozenset({"failure", "thing", "rule", "way_out"})
_KINDS: Final = {
    name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, RefusedError)
} | {SessionEndedError.__name__: SessionEndedError}


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer that holds once the broker that passes it on has applied the position."""

    position: int
    answer: MetaAnswer


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal by its class and its data."""

    error: str
    thing: Thing
    rule: str
    way_out: str
    failure: str
    texts: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)


RESPONSES: Final[Codec[Answered | Refusal]] = Codec(Answered | Refusal)


def refusal_of(error: RefusedError) -> Refusal:
    data = {name: value for name, value in vars(error).items() if name not in _OWN}
    return Refusal(
        type(error).__name__,
        error.thing,
        error.rule,
        error.way_out,
        error.failure,
        {name: value for name, value in data.items() if isinstance(value, str)},
        {name: value for name, value in data.items() if isinstance(value, int)},
    )


def error_of(refusal: Refusal) -> RefusedError:
    """Return the error with the same class, text and data. A class of a newer version is a refusal of no kind."""
    kind = _KINDS.get(refusal.error, RefusedError)
    error = kind.__new__(kind)
    # Their constructors make the parts that are here already.
    RefusedError.__init__(error, refusal.thing, refusal.rule, refusal.way_out, failure=refusal.failure)
    for name, value in {**refusal.texts, **refusal.numbers}.items():
        setattr(error, name, value)
    return error
