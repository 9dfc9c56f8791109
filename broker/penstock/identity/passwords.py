"""Passwords as digests. New ones are argon2id; those of other brokers are understood, so that users can move over.
Checking costs some 30 ms of a core on purpose, so callers do it in a thread. The salt arrives from outside: this room
has no randomness."""

import argon2
import argon2.exceptions
import argon2.low_level

from penstock.identity import foreign_digests
from penstock.identity.foreign_digests import algorithm_of
from penstock.model.errors import InvalidArgumentError, Thing, TooLargeError

ARGON2ID = "argon2id"
SALT_BYTES = 16
PASSWORD_BYTES_MAX = 1_024
ALGORITHMS = (ARGON2ID, *foreign_digests.ALGORITHMS)
_PASSWORD = Thing("password", "***")
_HASH = Thing("password hash", "***")

# OWASP's second choice: 19 MiB, two passes, one lane; the broker has a memory budget that 64 MiB a login would break.
_TIME_COST, _MEMORY_KIB, _PARALLELISM = 2, 19_456, 1
_HASHER = argon2.PasswordHasher(time_cost=_TIME_COST, memory_cost=_MEMORY_KIB, parallelism=_PARALLELISM)


def hash_password(password: str, salt: bytes) -> str:
    """The digest to store, with its parameters in it."""
    content = password.encode()
    if len(content) > PASSWORD_BYTES_MAX:
        raise TooLargeError(_PASSWORD, f"has {len(content)} bytes", size=len(content), size_max=PASSWORD_BYTES_MAX)
    assert len(salt) == SALT_BYTES
    return _HASHER.hash(content, salt=salt)


# Checked against when there is no such user or no such digest, so that both take the time of a wrong password.
# Written out, because making it costs 19 MiB and 30 ms at every start.
NOBODY = "$argon2id$v=19$m=19456,t=2,p=1$AAAAAAAAAAAAAAAAAAAAAA$CCv1k+OgTOY2o6b9oYXWUQjthgkklr8CN2O7KhjhHyo"


def verify_password(password_hash: str, algorithm: str, password: str) -> bool:
    """Whether the password is the one. An empty digest lets nobody in; every answer takes the time of argon2id."""
    content = password.encode("utf-8", "surrogateescape")
    if len(content) > PASSWORD_BYTES_MAX:
        content, password_hash = b"", ""
    if algorithm == ARGON2ID and password_hash:
        return _verified_argon2(password_hash, content)
    _verified_argon2(NOBODY, content)
    is_foreign = algorithm in foreign_digests.ALGORITHMS
    return bool(password_hash) and is_foreign and foreign_digests.is_right(password_hash, algorithm, content)


def algorithm_named(name: str | None, password_hash: str) -> str:
    """The algorithm that a file of any broker names; one that names none has ours, or SHA-256 as RabbitMQ's are."""
    if name:
        return algorithm_of(name)
    return ARGON2ID if not password_hash or password_hash.startswith("$argon2") else foreign_digests.SHA256


def check_digest(password_hash: str, algorithm: str) -> None:
    """Refuses what could never be verified. An empty digest is fine: a user who cannot log in by password."""
    if algorithm not in ALGORITHMS:
        raise InvalidArgumentError(
            Thing("hashing algorithm", algorithm),
            "is not supported",
            f"use one of {', '.join(ALGORITHMS)}",
            field="hashing_algorithm",
        )
    if not password_hash:
        return
    if algorithm == ARGON2ID:
        _check_argon2(password_hash)
    elif not foreign_digests.is_digest(password_hash, algorithm):
        raise InvalidArgumentError(
            _HASH,
            f"is no {algorithm} digest",
            "give base64 of salt and digest, or bcrypt's own text with a cost of at most 16",
            field="password_hash",
        )


def _check_argon2(password_hash: str) -> None:
    try:
        parameters = argon2.extract_parameters(password_hash)
    except (argon2.exceptions.InvalidHashError, ValueError) as error:
        raise InvalidArgumentError(
            _HASH, "is no argon2id digest", "set the password anew", field="password_hash"
        ) from error
    is_bounded = parameters.memory_cost <= 1_048_576 and parameters.time_cost <= 16 and parameters.parallelism <= 16
    if parameters.type is not argon2.low_level.Type.ID or not is_bounded:
        raise InvalidArgumentError(
            _HASH,
            "is not argon2id with at most 1 GiB of memory, 16 passes and 16 lanes",
            "set the password anew",
            field="password_hash",
        )


def _verified_argon2(password_hash: str, password: bytes) -> bool:
    try:
        return _HASHER.verify(password_hash, password)
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False
