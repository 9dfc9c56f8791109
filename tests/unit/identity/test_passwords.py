"""Password digests: ours, and RabbitMQ's."""

import base64
import hashlib

import pytest

from penstock.identity import foreign_digests, hash_password, passwords, verify_password
from penstock.identity.passwords import NOBODY, algorithm_named, check_digest
from penstock.identity.random_digests import RANDOM, hash_random
from penstock.model.errors import InvalidArgumentError, TooLargeError

SALT = bytes(range(16))
SHA256 = "rabbit_password_hashing_sha256"
RABBIT = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + b"secret").digest()).decode()
OURS = hash_password("secret", SALT)
RANDOM_PASSWORD = "0123456789abcdefghijklmnopqrstuv"
BCRYPT = "$2a$04$" + "a" * 53
COSTLY = [
    ("$argon2id$v=19$m=65537,t=2,p=1$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id"),
    ("$argon2id$v=19$m=19456,t=5,p=1$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id"),
    ("$argon2id$v=19$m=19456,t=2,p=5$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id"),
    ("$2a$13$" + "a" * 53, "lavinmq_bcrypt"),
]


@pytest.fixture
def checked(monkeypatch):
    """Return the costly digests, as they are computed."""
    found = []

    def argon2(password_hash, _):
        found.append(password_hash)
        return False

    def bcrypt(password_hash, _):
        found.append(password_hash)
        return False

    monkeypatch.setattr(passwords, "_verified_argon2", argon2)
    monkeypatch.setattr(foreign_digests, "_is_bcrypt", bcrypt)
    return found


def test_only_the_password_itself_is_right():
    digest = hash_password("secret", SALT)

    assert digest.startswith("$argon2id$")
    assert verify_password(digest, "argon2id", "secret")
    assert not verify_password(digest, "argon2id", "Secret")
    assert not verify_password(digest, "argon2id", "")


def test_two_users_of_one_password_have_two_digests():
    assert hash_password("secret", SALT) != hash_password("secret", SALT[::-1])


def test_nobodys_digest_takes_as_long_as_everybodys():
    assert hash_password("nobody", bytes(16)) == NOBODY


@pytest.mark.parametrize("password", ["", "x", "secret"])
def test_an_empty_digest_lets_nobody_in(password):
    assert not verify_password("", "argon2id", password)


def test_a_digest_of_rabbitmq_is_understood():
    assert verify_password(RABBIT, SHA256, "secret")
    assert not verify_password(RABBIT, SHA256, "other")


@pytest.mark.parametrize("digest", ["", "not base64!", "QUJD", "$argon2id$nonsense"])
def test_a_digest_that_is_none_is_wrong_and_no_error(digest):
    assert not verify_password(digest, SHA256, "secret")
    assert not verify_password(digest, "argon2id", "secret")


@pytest.mark.parametrize(
    ("digest", "algorithm"),
    [
        ("x", "rabbit_password_hashing_md5"),
        ("x", "rabbit_password_hashing_sha1"),
        ("$2a$31$" + "a" * 53, "lavinmq_bcrypt"),
        ("plain", "argon2id"),
        ("QUJD", SHA256),
        ("$argon2id$v=19$m=4000000,t=3,p=4$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id"),
        ("$argon2i$v=19$m=65536,t=3,p=4$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id"),
        *COSTLY,
    ],
)
def test_a_digest_that_could_never_be_verified_is_refused(digest, algorithm):
    with pytest.raises(InvalidArgumentError):
        check_digest(digest, algorithm)


@pytest.mark.parametrize(("digest", "algorithm"), COSTLY)
def test_a_digest_above_the_bounds_is_refused_by_name_and_never_checked(digest, algorithm, checked):
    """One guess at such a password occupied a checker for seconds."""
    with pytest.raises(InvalidArgumentError, match="costs more to check than is allowed: argon2id of 64 MiB"):
        check_digest(digest, algorithm)

    assert not verify_password(digest, algorithm, "secret")
    assert checked == [NOBODY]


@pytest.mark.parametrize("password", ["wrong", "", "x" * 100, "x" * 2_000])
@pytest.mark.parametrize(
    ("digest", "algorithm", "costly"),
    [
        (OURS, "argon2id", OURS),
        ("", "argon2id", NOBODY),
        ("nonsense", "argon2id", NOBODY),
        (RABBIT, SHA256, NOBODY),
        ("QUJD", SHA256, NOBODY),
        (BCRYPT, "lavinmq_bcrypt", BCRYPT),
        ("nonsense", "lavinmq_bcrypt", NOBODY),
        (hash_random(RANDOM_PASSWORD, SALT), RANDOM, NOBODY),
        ("nonsense", RANDOM, NOBODY),
    ],
)
def test_one_costly_digest_is_computed_for_each_check(digest, algorithm, costly, password, checked):
    """Users of bcrypt also cost argon2id, which revealed that they exist."""
    assert not verify_password(digest, algorithm, password)

    assert checked == [costly]


def test_a_random_password_costs_nothing_when_it_is_right(checked):
    digest = hash_random(RANDOM_PASSWORD, SALT)
    check_digest(digest, RANDOM)

    assert verify_password(digest, RANDOM, RANDOM_PASSWORD)
    assert checked == []
    assert not verify_password(digest, "argon2id", RANDOM_PASSWORD)
    assert not verify_password(digest, RANDOM, RANDOM_PASSWORD + "x")
    assert hash_random(RANDOM_PASSWORD, SALT[::-1]) != digest


def test_a_password_that_is_too_short_to_be_random_is_refused():
    with pytest.raises(InvalidArgumentError, match="has 31 characters, fewer than 32"):
        hash_random("x" * 31, SALT)


def test_a_random_password_that_no_log_in_takes_is_refused():
    """It was stored, and its user could not log in."""
    longest = "x" * 1_024
    assert verify_password(hash_random(longest, SALT), RANDOM, longest)

    with pytest.raises(TooLargeError, match="has 1025 bytes"):
        hash_random(longest + "x", SALT)


def test_earlier_versions_read_the_digest_of_a_random_password_as_another_broker_s():
    """So that a broker that goes back to an earlier image starts, and its users log in."""
    digest = hash_random(RANDOM_PASSWORD, SALT)

    assert foreign_digests.algorithm_of(RANDOM) == SHA256
    assert foreign_digests.is_right(digest, SHA256, RANDOM_PASSWORD.encode())
    assert algorithm_named(RANDOM, digest) == RANDOM


def test_good_digests_are_let_through():
    check_digest("", "argon2id")
    check_digest(BCRYPT.replace("$04$", "$12$"), "lavinmq_bcrypt")
    check_digest("$argon2id$v=19$m=65536,t=4,p=4$c2FsdHNhbHQ$aGFzaGhhc2g", "argon2id")
    check_digest(RABBIT, SHA256)
    check_digest(hash_password("a", SALT), "argon2id")


def test_a_password_longer_than_the_bound_is_refused_and_never_right():
    with pytest.raises(TooLargeError):
        hash_password("a" * 1_025, SALT)

    assert not verify_password(hash_password("a", SALT), "argon2id", "a" * 1_025)
