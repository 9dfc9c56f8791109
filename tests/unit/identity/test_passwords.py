"""Digests of passwords: ours, and those that come from RabbitMQ."""

import base64
import hashlib

import pytest

from penstock.identity import hash_password, verify_password
from penstock.identity.passwords import NOBODY, check_digest
from penstock.model.errors import InvalidArgumentError, TooLargeError

SALT = bytes(range(16))
SHA256 = "rabbit_password_hashing_sha256"
RABBIT = base64.b64encode(b"salt" + hashlib.sha256(b"salt" + b"secret").digest()).decode()


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
    ],
)
def test_a_digest_that_could_never_be_verified_is_refused(digest, algorithm):
    with pytest.raises(InvalidArgumentError):
        check_digest(digest, algorithm)


def test_good_digests_are_let_through():
    check_digest("", "argon2id")
    check_digest(RABBIT, SHA256)
    check_digest(hash_password("a", SALT), "argon2id")


def test_a_password_longer_than_the_bound_is_refused_and_never_right():
    with pytest.raises(TooLargeError):
        hash_password("a" * 1_025, SALT)

    assert not verify_password(hash_password("a", SALT), "argon2id", "a" * 1_025)
