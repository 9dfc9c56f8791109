"""Decoy digests: of the kinds that users have, in proportion, and constant for a name."""

import pytest

from penstock.identity import hash_password, verify_password
from penstock.identity.decoys import Decoys
from penstock.identity.foreign_digests import bcrypt_decoy
from penstock.identity.passwords import NO_DIGEST, decoy_like

KEY = bytes(32)
BCRYPT = "lavinmq_bcrypt"
SHA256 = "rabbit_password_hashing_sha256"
OURS = (hash_password("secret", bytes(16)), "argon2id")
THEIRS = ("$2a$04$" + "a" * 53, BCRYPT)
NAMES = [f"user{number}" for number in range(1_000)]
OTHER = "$argon2id$v=19$m=32768,t=3,p=2$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA"


def kinds(users):
    decoys = Decoys(users, KEY)
    return {name: decoys.pick(name)[1] for name in NAMES}


@pytest.mark.parametrize(
    ("digest", "algorithm", "decoy"),
    [
        (*OURS, NO_DIGEST),
        ("", "argon2id", NO_DIGEST),
        ("plain", "argon2id", NO_DIGEST),
        ("QUJD", SHA256, NO_DIGEST),
        ("plain", BCRYPT, NO_DIGEST),
        (*THEIRS, (bcrypt_decoy(4), BCRYPT)),
        ("$2a$31$" + "a" * 53, BCRYPT, NO_DIGEST),
    ],
)
def test_a_decoy_costs_what_the_digest_costs(digest, algorithm, decoy):
    assert decoy_like(digest, algorithm) == decoy


def test_a_decoy_has_the_parameters_of_an_argon2id_digest():
    digest, algorithm = decoy_like(OTHER, "argon2id")

    assert algorithm == "argon2id"
    assert digest.startswith("$argon2id$v=19$m=32768,t=3,p=2$")


@pytest.mark.parametrize("digest", [OURS, THEIRS, NO_DIGEST, (OTHER, "argon2id")])
def test_no_password_fits_a_decoy(digest):
    for password in ("", "secret", "nobody"):
        assert not verify_password(*decoy_like(*digest), password)


def test_unknown_names_have_the_kinds_that_users_have_as_often():
    found = list(kinds([OURS, OURS, THEIRS, OURS]).values())

    assert 180 < found.count(BCRYPT) < 320, "a quarter of them"


def test_without_users_unknown_names_cost_what_ours_cost():
    assert Decoys([], KEY).pick("anna") == NO_DIGEST


def test_names_move_only_to_our_kind_while_users_do():
    before, after = kinds([THEIRS, THEIRS, OURS]), kinds([OURS, THEIRS, OURS])

    moved = {(before[name], after[name]) for name in NAMES if before[name] != after[name]}
    assert moved == {(BCRYPT, "argon2id")}
