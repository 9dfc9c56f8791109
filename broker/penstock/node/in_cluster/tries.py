"""When a drained broker tries again to hand over a shard that no other broker took over.

It waits longer each time, because each try stops the publishers of the shard for a moment. When other replicas may lead
it than at the last try, it tries at once. This module knows no clock.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Final

from penstock.cluster.record import ReplicaId

FIRST_S: Final = 2.0
LONGEST_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class _Failed:
    heirs: AbstractSet[ReplicaId]
    wait_s: float
    again_at: float


class Tries:
    """Times are in seconds, of a clock that never goes back."""

    def __init__(self, first_s: float = FIRST_S, longest_s: float = LONGEST_S) -> None:
        self._first_s, self._longest_s = first_s, longest_s
        self._failed: dict[bytes, _Failed] = {}

    def is_due(self, shard: bytes, heirs: AbstractSet[ReplicaId], now: float) -> bool:
        """Return whether to hand over a shard now, which these replicas may lead."""
        failed = self._failed.get(shard)
        return failed is None or failed.heirs != heirs or now >= failed.again_at

    def fail(self, shard: bytes, heirs: AbstractSet[ReplicaId], now: float) -> float:
        """Note that none of these replicas took a shard over; return the time to wait."""
        before = self._failed.get(shard)
        is_same = before is not None and before.heirs == heirs
        wait_s = min(2 * before.wait_s, self._longest_s) if before is not None and is_same else self._first_s
        self._failed[shard] = _Failed(heirs, wait_s, now + wait_s)
        return wait_s

    def keep(self, shards: AbstractSet[bytes]) -> None:
        """Forget all shards but these."""
        self._failed = {shard: failed for shard, failed in self._failed.items() if shard in shards}
