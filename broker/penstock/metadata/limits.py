"""Limits of a vhost: how many queues it may have, and how many connections may be open in it. None is no limit. The
number of queues is held here, where they are declared; connections are counted by whoever has them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.metadata.commands import SetLimits
from penstock.metadata.effects import Decision, Done, PersistLimits
from penstock.model.errors import InvalidArgumentError, LimitReachedError, Thing

if TYPE_CHECKING:
    from penstock.metadata.topology import VhostTopology

LIMIT_MAX: Final = 2**31 - 1
DEDICATED_MAX: Final = 256
"""Queues with a log of their own, each of which has a thread, files and maps; the engine holds to the same number."""
MAX_QUEUES: Final = "max-queues"
MAX_CONNECTIONS: Final = "max-connections"


@dataclass(frozen=True, slots=True)
class Limits:
    queues_max: int | None = None
    connections_max: int | None = None

    def written(self) -> dict[str, int]:
        """As other brokers write them."""
        both = {MAX_QUEUES: self.queues_max, MAX_CONNECTIONS: self.connections_max}
        return {key: value for key, value in both.items() if value is not None}


NO_LIMITS: Final = Limits()


def read_limits(vhost: str, fields: Mapping[str, object]) -> Limits:
    """A negative number is no limit, as elsewhere. Raises InvalidArgumentError for what cannot be honoured."""
    thing = Thing("limits of vhost", vhost)
    unknown = sorted(set(fields) - {MAX_QUEUES, MAX_CONNECTIONS})
    if unknown:
        raise InvalidArgumentError(
            thing, f"have '{unknown[0][:64]}', which is unknown", f"set {MAX_QUEUES} or {MAX_CONNECTIONS}"
        )
    return Limits(_limit(thing, MAX_QUEUES, fields), _limit(thing, MAX_CONNECTIONS, fields))


def _limit(thing: Thing, key: str, fields: Mapping[str, object]) -> int | None:
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value > LIMIT_MAX:
        raise InvalidArgumentError(
            thing, f"have a '{key}' that is no number up to {LIMIT_MAX}", "send a whole number", field=key
        )
    return None if value < 0 else value


def set_limits(state: "VhostTopology", command: SetLimits) -> Decision:
    """What is above a new limit stays; nothing is added to it."""
    if state.limits == command.limits:
        return Decision(Done(0))
    state.limits = command.limits
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
