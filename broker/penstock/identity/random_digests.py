"""Digests of random passwords: one salted SHA-256, base64 of the salt and the digest.

A costly digest protects passwords that can be guessed. One of 192 random bits cannot be guessed, whatever a guess
costs, so that a cheap digest is as safe. Programs make such passwords, thousands at a time; the program says that it
did, and only the length can be checked here.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

from penstock.identity.digest_bounds import PASSWORD_BYTES_MAX
from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

# Earlier versions read it by its ending as another broker's, and replace such a digest at the user's next log-in.
RANDOM: Final = "penstock_random_sha256"
SALT_BYTES: Final = 16
DIGEST_BYTES: Final = 32
# 192 bits in base64.
PASSWORD_LENGTH_MIN: Final = 32
_PASSWORD: Final = Thing("random password", "***")


def hash_random(password: str, salt: bytes) -> str:
    """Return the digest to store. Raises InvalidArgumentError for a password that is too short to be random enough.

    A longer one than log-ins take is refused too, as it would open nothing.
    """
    assert len(salt) == SALT_BYTES
    content = password.encode()
    if len(password) < PASSWORD_LENGTH_MIN:
        raise InvalidArgumentError(
            _PASSWORD,
            f"has {len(password)} characters, fewer than {PASSWORD_LENGTH_MIN}",
            "send a longer one, or without random_password",
            field="random_password",
        )
    if len(content) > PASSWORD_BYTES_MAX:
        raise TooLargeError(_PASSWORD, f"has {len(content)} bytes", size=len(content), size_max=PASSWORD_BYTES_MAX)
    return base64.b64encode(salt + _digest(salt, content)).decode()


def is_digest(password_hash: str) -> bool:
    """Return whether a password can be checked against it."""
    return _parts(password_hash) is not None


def is_right(password_hash: str, password: bytes) -> bool:
    """Check a password; an invalid digest is a wrong password and no error."""
    parts = _parts(password_hash)
    return parts is not None and hmac.compare_digest(_digest(parts[0], password), parts[1])


def _parts(password_hash: str) -> tuple[bytes, bytes] | None:
    try:
        content = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return None
    return (content[:SALT_BYTES], content[SALT_BYTES:]) if len(content) == SALT_BYTES + DIGEST_BYTES else None


def _digest(salt: bytes, password: bytes) -> bytes:
    return hashlib.sha256(salt + password).digest()
