"""Caches verified credentials, so that argon2id runs once per user and process, not once per call.

It holds keyed digests, never passwords; the stored hash is part of the digest, so a changed password invalidates the
entry.
"""

import hashlib

from cachetools import LRUCache

KEY_BYTES = 32


class CredentialCache:
    """A bounded set of digests, least recently used out first. The key is random and lives as long as the process."""

    def __init__(self, key: bytes, entries_max: int) -> None:
        assert len(key) == KEY_BYTES
        assert entries_max > 0
        self._key = key
        self._digests: LRUCache[bytes, bool] = LRUCache(entries_max)

    def __len__(self) -> int:
        return len(self._digests)

    def digest(self, name: str, password: str, password_hash: str) -> bytes:
        """Return a digest of these credentials, which also identifies identical checks."""
        digest = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (name, password, password_hash):
            content = part.encode("utf-8", "surrogateescape")
            digest.update(len(content).to_bytes(8, "little"))  # otherwise "ab","c" would equal "a","bc"
            digest.update(content)
        return digest.digest()

    def knows(self, digest: bytes) -> bool:
        return self._digests.get(digest, False)

    def remember(self, digest: bytes) -> None:
        self._digests[digest] = True
