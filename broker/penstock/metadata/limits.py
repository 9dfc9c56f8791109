"""Limits of a vhost: how many queues it may have, how many connections may be open in it, and how much may be published
to it. None is no limit. The number of queues is held here, where they are declared; the others are held by whoever has
the connections and moves the messages."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from penstock.metadata.commands import SetLimits
from penstock.metadata.effects import Decision, Done, PersistLimits
from penstock.model import limits
from penstock.model.errors import LimitReachedError, Thing
from penstock.model.limits import write_limits

if TYPE_CHECKING:
    from penstock.metadata.topology import VhostTopology

DEDICATED_MAX: Final = 256
"""Queues with a log of their own, each of which has a thread, files and maps; the engine holds to the same number."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Rates are a second's."""

    queues_max: int | None = None
    connections_max: int | None = None
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None

    def written(self) -> dict[str, int]:
        """As other brokers write them."""
        return write_limits(asdict(self))


NO_LIMITS: Final = Limits()
_FIELDS: Final = tuple(asdict(NO_LIMITS))


def read_limits(vhost: str, fields: Mapping[str, object]) -> Limits:
    """Raises InvalidArgumentError for what cannot be honoured."""
    return Limits(**limits.read_limits(Thing("limits of vhost", vhost), fields, _FIELDS))


def check_limits(vhost: str, wanted: Limits) -> None:
    """Raises InvalidArgumentError."""
    limits.check_limits(Thing("limits of vhost", vhost), asdict(wanted))


def set_limits(state: "VhostTopology", command: SetLimits) -> Decision:
    """What is above a new limit stays; nothing is added to it."""
    check_limits(state.vhost, command.limits)
    if state.limits == command.limits:
        return Decision(Done(0))
    state.put_limits(command.limits)
    return Decision(Done(), [PersistLimits(command.limits)])


def check_queues(state: "VhostTopology", thing: Thing, new_count: int = 1) -> None:
    """Before so many are made."""
    limit = state.limits.queues_max
    if limit is not None and new_count > 0 and len(state.queues) + new_count > limit:
        more = "one more" if new_count == 1 else f"{new_count} queues, more"
        raise LimitReachedError(thing, f"would be {more} than vhost '{state.vhost}' may have", limit=limit)


def check_dedicated(state: "VhostTopology", thing: Thing, new_count: int = 1) -> None:
    """Before so many with a log of their own are made."""
    count = sum(queue.is_dedicated for queue in state.queues.values())
    if new_count > 0 and count + new_count > DEDICATED_MAX:
        rule = f"finds {count} queues with a log of their own in vhost '{state.vhost}' already"
        raise LimitReachedError(thing, rule, limit=DEDICATED_MAX)
