"""Password digests. New ones are argon2id; those of other brokers are supported, so that users can move over.

Random passwords have cheap digests, which `random_digests` explains. A check of others costs some 30 ms of a core on
purpose, so callers run it in a thread. Callers pass the salt: this module has no randomness.
"""

import argon2
import argon2.exceptions
import argon2.low_level

from penstock.identity import foreign_digests, random_digests
from penstock.identity.digest_bounds import BOUNDS, PASSWORD_BYTES_MAX
from penstock.identity.foreign_digests import algorithm_of
from penstock.identity.random_digests import RANDOM
from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

ARGON2ID = "argon2id"
SALT_BYTES = 16
OURS = frozenset({ARGON2ID, RANDOM})
ALGORITHMS = (ARGON2ID, RANDOM, *foreign_digests.ALGORITHMS)
_PASSWORD = Thing("password", "***")
_HASH = Thing("password hash", "***")

# OWASP's second choice: 19 MiB, two passes, one lane; 64 MiB per log-in would break the broker's memory budget.
_TIME_COST, _MEMORY_KIB, _PARALLELISM = 2, 19_456, 1
_HASHER = argon2.PasswordHasher(time_cost=_TIME_COST, memory_cost=_MEMORY_KIB, parallelism=_PARALLELISM)


def hash_password(password: str, salt: bytes) -> str:
    """Return the digest to store, with its parameters in it."""
    content = password.encode()
    if len(content) > PASSWORD_BYTES_MAX:
        raise TooLargeError(_PASSWORD, f"has {len(content)} bytes", size=len(content), size_max=PASSWORD_BYTES_MAX)
    assert len(salt) == SALT_BYTES
    return _HASHER.hash(content, salt=salt)


# Checked where there is no digest, or a very cheap one, so that all take the time of a wrong password. A literal,
# because making it costs 19 MiB and 30 ms at every start.
_NOBODY_END = "$AAAAAAAAAAAAAAAAAAAAAA$CCv1k+OgTOY2o6b9oYXWUQjthgkklr8CN2O7KhjhHyo"
_OURS = "$argon2id$v=19$m=19456,t=2,p=1"
NOBODY = _OURS + _NOBODY_END
NO_DIGEST = ("", ARGON2ID)
"""The digest of a user without a password: every check of it fails, in the time of a check of one of our digests."""


def verify_password(password_hash: str, algorithm: str, password: str) -> bool:
    """Return whether the password is right; with an empty digest it never is.

    Each check computes one costly digest: the user's own, or argon2id where the user has none. Only a random password
    that is right costs less, so that a wrong one does not show whose digest is cheap.
    """
    content = password.encode("utf-8", "surrogateescape")
    is_short = len(content) <= PASSWORD_BYTES_MAX
    return _is_right(password_hash, algorithm, content if is_short else b"") and is_short


def _is_right(password_hash: str, algorithm: str, content: bytes) -> bool:
    if is_too_costly(password_hash, algorithm):
        password_hash = ""
    if algorithm == RANDOM and random_digests.is_right(password_hash, content):
        return True
    if algorithm == ARGON2ID and _argon2_parameters(password_hash) is not None:
        return _verified_argon2(password_hash, content)
    if algorithm != foreign_digests.BCRYPT or not foreign_digests.is_digest(password_hash, algorithm):
        _verified_argon2(NOBODY, content)
    is_foreign = algorithm in foreign_digests.ALGORITHMS
    return bool(password_hash) and is_foreign and foreign_digests.is_right(password_hash, algorithm, content)


def decoy_like(password_hash: str, algorithm: str) -> tuple[str, str]:
    """Return a digest that no password matches and that costs as much to check, and its algorithm."""
    if password_hash.startswith(f"{_OURS}$") or is_too_costly(password_hash, algorithm):
        return NO_DIGEST
    if algorithm == foreign_digests.BCRYPT:
        cost = foreign_digests.bcrypt_cost(password_hash)
        return NO_DIGEST if cost is None else (foreign_digests.bcrypt_decoy(cost), algorithm)
    found = _argon2_parameters(password_hash) if algorithm == ARGON2ID else None
    if found is None:
        return NO_DIGEST
    costs = f"m={found.memory_cost},t={found.time_cost},p={found.parallelism}"
    return f"$argon2id$v={found.version}${costs}{_NOBODY_END}", ARGON2ID


def algorithm_named(name: str | None, password_hash: str) -> str:
    """Return the algorithm that any broker's file names; by default ours, or SHA-256 for RabbitMQ's format."""
    if name:
        return name if name == RANDOM else algorithm_of(name)
    return ARGON2ID if not password_hash or password_hash.startswith("$argon2") else foreign_digests.SHA256


def check_digest(password_hash: str, algorithm: str) -> None:
    """Refuse a digest that can never be verified. An empty one is fine: a user who cannot log in by password."""
    if algorithm not in ALGORITHMS:
        raise InvalidArgumentError(
            Thing("hashing algorithm", algorithm),
            "is not supported",
            f"use one of {', '.join(ALGORITHMS)}",
            field="hashing_algorithm",
        )
    if not password_hash:
        return
    if is_too_costly(password_hash, algorithm):
        raise InvalidArgumentError(
            _HASH, f"costs more to check than is allowed: {BOUNDS}", "set the password again", field="password_hash"
        )
    if algorithm == ARGON2ID:
        if _argon2_parameters(password_hash) is None:
            raise InvalidArgumentError(
                _HASH, "is not an argon2id digest", "set the password again", field="password_hash"
            )
    elif not _is_digest(password_hash, algorithm):
        raise InvalidArgumentError(
            _HASH,
            f"is not a {algorithm} digest",
            "send base64 of salt and digest, or bcrypt's own format",
            field="password_hash",
        )


def _is_digest(password_hash: str, algorithm: str) -> bool:
    if algorithm == RANDOM:
        return random_digests.is_digest(password_hash)
    return foreign_digests.is_digest(password_hash, algorithm)


def is_too_costly(password_hash: str, algorithm: str) -> bool:
    """Return whether a digest is valid but above the limits: it is never checked, its user needs a new password."""
    if algorithm == foreign_digests.BCRYPT:
        return (foreign_digests.bcrypt_cost(password_hash) or 0) > BOUNDS.bcrypt_cost
    found = _argon2_parameters(password_hash) if algorithm == ARGON2ID else None
    return found is not None and (
        found.memory_cost > BOUNDS.argon2_memory_kib
        or found.time_cost > BOUNDS.argon2_passes
        or found.parallelism > BOUNDS.argon2_lanes
    )


def _argon2_parameters(password_hash: str) -> argon2.Parameters | None:
    """Return the parameters; None for an invalid argon2id digest."""
    try:
        found = argon2.extract_parameters(password_hash)
    except (argon2.exceptions.InvalidHashError, ValueError):
        return None
    return found if found.type is argon2.low_level.Type.ID else None


def _verified_argon2(password_hash: str, password: bytes) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
