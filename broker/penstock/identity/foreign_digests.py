"""Password digests of RabbitMQ and LavinMQ, so that users can move over: salted SHA-256, SHA-512, MD5, and bcrypt.

They are only checked here, never made; a user who logs in with one gets an argon2id digest.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import Final

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
MD5: Final = "rabbit_password_hashing_md5"
BCRYPT: Final = "lavinmq_bcrypt"
ALGORITHMS: Final = (SHA256, SHA512, MD5, BCRYPT)

BCRYPT_PASSWORD_BYTES_MAX: Final = 72

_DECOY_END: Final = "$" + "." * 53
_BY_ENDING: Final = {"sha256": SHA256, "sha512": SHA512, "md5": MD5, "bcrypt": BCRYPT}
_DIGESTS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5"}
_OLD_PREFIX: Final = re.compile(r"\$[156]\$")
_BCRYPT: Final = re.compile(r"\$2[abxy]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")


def algorithm_of(name: str) -> str:
    """Return the canonical name of an algorithm, which others spell in many ways; an unknown one is unchanged."""
    lowered = name.lower()
    return next((known for ending, known in _BY_ENDING.items() if lowered.endswith(ending)), name)


def is_digest(password_hash: str, algorithm: str) -> bool:
    """Return whether a password can be checked against it."""
    if algorithm == BCRYPT:
        return bcrypt_cost(password_hash) is not None
    return _salted(password_hash, algorithm) is not None


def is_right(password_hash: str, algorithm: str, password: bytes) -> bool:
    """Check a password; an invalid digest is a wrong password and no error."""
    if not is_digest(password_hash, algorithm):
        return False
    if algorithm == BCRYPT:
        # bcrypt uses 72 bytes only: a longer password is wrong rather than cut, and takes the same time.
        shown = password[:BCRYPT_PASSWORD_BYTES_MAX]
        return _is_bcrypt(password_hash, shown) and len(password) <= BCRYPT_PASSWORD_BYTES_MAX
    salted = _salted(password_hash, algorithm)
    assert salted is not None
    salt, expected = salted
    return hmac.compare_digest(_digest(algorithm, salt + password), expected)


def bcrypt_cost(password_hash: str) -> int | None:
    """Return the binary logarithm of its rounds; None for an invalid bcrypt digest."""
    found = _BCRYPT.fullmatch(password_hash)
    cost = int(found["cost"]) if found is not None else 0
    return cost if 4 <= cost <= 31 else None


def bcrypt_decoy(cost: int) -> str:
    """Return a digest of that cost that no password matches."""
    return f"$2b${cost:02}{_DECOY_END}"


def _is_bcrypt(password_hash: str, password: bytes) -> bool:
    import bcrypt

    return bcrypt.checkpw(password, password_hash.encode())


def _salted(password_hash: str, algorithm: str) -> tuple[bytes, bytes] | None:
    """Return salt and digest; the digest is the last bytes, of its known length."""
    try:
        content = base64.b64decode(_OLD_PREFIX.sub("", password_hash, count=1), validate=True)
    except (binascii.Error, ValueError):
        return None
    size = len(_digest(algorithm, b""))
    return (content[:-size], content[-size:]) if len(content) > size else None


def _digest(algorithm: str, content: bytes) -> bytes:
    return hashlib.new(_DIGESTS[algorithm], content, usedforsecurity=False).digest()
