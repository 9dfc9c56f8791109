"""Which brokers are alive, as one broker sees it.

A broker's session ends when its beat stayed the same for the whole time on the observer's own clock, so clocks of
different machines are never compared.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

SESSION_S = 10.0
"""A session ends after this time without a beat."""
BEAT_S = 3.0
"""A broker beats as often as this."""


@dataclass(frozen=True, slots=True)
class Sessions:
    """The beats that were seen, each with the time at which it was first seen, in seconds of a monotonic clock."""

    seen: Mapping[str, tuple[str, float]]

    def observe(self, beats: Mapping[str, str], now: float) -> "Sessions":
        """Return the sessions after one more look at the beats. A broker without a beat keeps the last one."""
        changed = {broker: (beat, now) for broker, beat in beats.items() if self.seen.get(broker, ("", now))[0] != beat}
        return replace(self, seen={**self.seen, **changed})

    def anew(self, now: float) -> "Sessions":
        """Return the sessions with all times begun again: the beats could not be seen for a while."""
        return replace(self, seen={broker: (beat, now) for broker, (beat, _) in self.seen.items()})

    def ended(self, now: float) -> frozenset[str]:
        """Return the brokers whose sessions have ended."""
        return frozenset(broker for broker, (_, since) in self.seen.items() if now - since >= SESSION_S)
