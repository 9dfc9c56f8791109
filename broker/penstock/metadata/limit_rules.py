"""Sets the limits of a virtual host and checks declarations against them.

The listeners and the engine enforce the limits on connections and rates.
"""

from typing import Final

from penstock.metadata.commands import SetLimits
from penstock.metadata.effects import Decision, Done, PersistLimits
from penstock.metadata.topology import VhostTopology
from penstock.model.errors import InvalidArgumentError, LimitReachedError, PreconditionFailedError, Thing
from penstock.model.limits import Holder, check_limits

DEDICATED_MAX: Final = 256
"""Queues with a log of their own, each of which has a thread, files and maps; the engine holds to the same number."""
SHARDS_MAX: Final = 64
"""Shards of a virtual host; the engine holds to the same number."""


def set_limits(state: VhostTopology, command: SetLimits) -> Decision:
    """Set the limits. Things above a new limit stay, but no more can be added."""
    check_limits(Holder.VHOST, state.vhost, command.limits)
    if state.limits == command.limits:
        return Decision(Done(0))
    state.put_limits(command.limits)
    return Decision(Done(), [PersistLimits(command.limits)])


def check_queues(state: VhostTopology, thing: Thing, new_count: int = 1) -> None:
    """Before so many are made."""
    limit = state.limits.queues_max
    if limit is not None and new_count > 0 and len(state.queues) + new_count > limit:
        more = "one more" if new_count == 1 else f"{new_count} queues, more"
        raise LimitReachedError(thing, f"would be {more} than vhost '{state.vhost}' may have", limit=limit)


def check_shard_count(thing: Thing, count: int, current: int = 1) -> int:
    """Return how many shards a virtual host is to have. Raises for a number that it cannot have."""
    if not 1 <= count <= SHARDS_MAX:
        raise InvalidArgumentError(
            thing, f"cannot have {count} shards", f"choose a number from 1 to {SHARDS_MAX}", field="shards"
        )
    if count < current:
        raise PreconditionFailedError(
            thing,
            f"has {current} shards and cannot have {count}: a queue stays in its shard",
            "choose at least as many; for fewer, create another vhost and move the messages",
            field="shards",
        )
    return count


def check_dedicated(state: VhostTopology, thing: Thing, new_count: int = 1) -> None:
    """Before so many with a log of their own are made."""
    count = sum(queue.is_dedicated for queue in state.queues.values())
    if new_count > 0 and count + new_count > DEDICATED_MAX:
        rule = f"cannot be declared: vhost '{state.vhost}' has {count} dedicated logs"
        raise LimitReachedError(thing, rule, limit=DEDICATED_MAX)
