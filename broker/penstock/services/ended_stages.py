"""Names of stages whose job is over: for an hour the user that ended one cannot open it again.

A task that was given up would otherwise make its stage anew, with rows that nothing publishes. Only memory has the
names, so a restart of the broker ends the hour; what a late task stages after that, the broker deletes as abandoned.
"""

from typing import Final

from cachetools import LRUCache, TTLCache

from penstock.kit.clock import Clock
from penstock.model.errors import PreconditionFailedError, Thing

ENDED_SECONDS: Final = 3_600
NAMES_OF_USER_MAX: Final = 16_384
USERS_MAX: Final = 1_024
"""More forget the user that ended or opened a stage longest ago."""


class EndedStages:
    """Invariant: a name is refused to the user that ended it, and to no other."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._of_users: LRUCache[str, TTLCache[tuple[str, str], bool]] = LRUCache(USERS_MAX)

    def add(self, user: str, vhost: str, name: str) -> None:
        names = self._of_users.get(user)
        if names is None:
            names = self._of_users[user] = TTLCache(NAMES_OF_USER_MAX, ENDED_SECONDS, self._clock.monotonic)
        names[vhost, name] = True

    def check(self, user: str, vhost: str, name: str) -> None:
        """Raise PreconditionFailedError when the user ended a stage of this name within the last hour."""
        names = self._of_users.get(user)
        if names is not None and (vhost, name) in names:
            raise PreconditionFailedError(
                Thing("stage", name, vhost),
                "was ended: its job is over, and rows of a task that is still running are not published any more",
                "stage rows of another job under another name",
            )
