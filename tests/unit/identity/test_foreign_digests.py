"""Digests of RabbitMQ and LavinMQ: each kind accepts its password and no other."""

import base64
import hashlib

import bcrypt
import pytest

from penstock.identity import verify_password
from penstock.identity.foreign_digests import algorithm_of
from penstock.identity.passwords import algorithm_named, check_digest


def salted(digest):
    return base64.b64encode(b"salt" + hashlib.new(digest, b"saltsecret").digest()).decode()


DIGESTS = {
    "rabbit_password_hashing_sha256": salted("sha256"),
    "rabbit_password_hashing_sha512": salted("sha512"),
    "rabbit_password_hashing_md5": salted("md5"),
    "lavinmq_bcrypt": bcrypt.hashpw(b"secret", b"$2a$04$abcdefghijklmnopqrstuu").decode(),
}


@pytest.mark.parametrize(("algorithm", "digest"), DIGESTS.items())
def test_each_kind_of_digest_lets_its_password_in(algorithm, digest):
    check_digest(digest, algorithm)

    assert verify_password(digest, algorithm, "secret")
    assert not verify_password(digest, algorithm, "Secret")
    assert not verify_password(digest, algorithm, "")
    assert not verify_password(digest, algorithm, "secret" + "x" * 100)


@pytest.mark.parametrize(("algorithm", "digest"), DIGESTS.items())
def test_a_digest_under_another_algorithm_s_name_lets_nobody_in(algorithm, digest):
    for other in set(DIGESTS) - {algorithm}:
        assert not verify_password(digest, other, "secret")


def test_what_stands_before_an_old_digest_is_passed_over():
    assert verify_password("$5$" + salted("sha256"), "rabbit_password_hashing_sha256", "secret")


@pytest.mark.parametrize(
    ("written", "known"),
    [
        ("SHA256", "rabbit_password_hashing_sha256"),
        ("Rabbit_Password_Hashing_SHA512", "rabbit_password_hashing_sha512"),
        ("md5", "rabbit_password_hashing_md5"),
        ("Bcrypt", "lavinmq_bcrypt"),
        ("argon2id", "argon2id"),
        ("rot13", "rot13"),
    ],
)
def test_an_algorithm_is_known_by_the_end_of_its_name(written, known):
    assert algorithm_of(written) == known


def test_a_digest_without_an_algorithm_is_rabbitmq_s_unless_it_says_so_itself():
    assert algorithm_named(None, salted("sha256")) == "rabbit_password_hashing_sha256"
    assert algorithm_named("", "$argon2id$v=19$") == "argon2id"
    assert algorithm_named("", "") == "argon2id"
