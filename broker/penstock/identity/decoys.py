"""Decoy digests for unknown names, so that the time of a refusal does not reveal whether a user exists.

Users from other brokers have digests that take another time than ours until they next log in. So unknown names are
spread over the kinds of digests that users have, in the same proportions. A name keeps its kind as long as the users
stay the same.
"""

import hashlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

from penstock.identity.credentials import KEY_BYTES
from penstock.identity.passwords import NO_DIGEST, decoy_like


class Decoys:
    """Decoys made of the digests of all users, each with its algorithm; the key is random."""

    def __init__(self, digests: Iterable[tuple[str, str]], key: bytes) -> None:
        assert len(key) == KEY_BYTES
        counts = Counter(decoy_like(password_hash, algorithm) for password_hash, algorithm in digests)
        # Ours last: as they become more, the shares of the others shrink, and no name moves to one of them.
        kinds = sorted(counts, key=lambda kind: (kind == NO_DIGEST, kind))
        self._key = key
        self._kinds = kinds or [NO_DIGEST]
        self._ends = list(accumulate(counts[kind] for kind in kinds)) or [1]

    def pick(self, name: str) -> tuple[str, str]:
        """Return a digest that no password matches, and its algorithm."""
        digest = hashlib.blake2b(name.encode("utf-8", "surrogateescape"), key=self._key, digest_size=8).digest()
        place = int.from_bytes(digest, "little") * self._ends[-1] >> 64
        return self._kinds[bisect_right(self._ends, place)]
