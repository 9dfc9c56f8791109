"""Checks a password against the digest that a broker has of it, where that costs nothing: those of random passwords.

Other digests are costly on purpose. Their passwords are tried on the broker, which is the one to decide.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

# The broker's name for base64 of 16 bytes of salt and of SHA-256 of salt and password.
RANDOM: Final = "penstock_random_sha256"
SALT_BYTES: Final = 16


def fits(password: str, digest: str, algorithm: str) -> bool | None:
    """Return whether the password is that of the digest; None when only the broker can tell."""
    if algorithm != RANDOM:
        return None
    try:
        content = base64.b64decode(digest, validate=True)
    except (binascii.Error, ValueError):
        return None
    salt, expected = content[:SALT_BYTES], content[SALT_BYTES:]
    return hmac.compare_digest(hashlib.sha256(salt + password.encode()).digest(), expected)
