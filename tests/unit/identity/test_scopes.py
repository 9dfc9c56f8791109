"""Scopes of RabbitMQ and LavinMQ: their grants, and nothing else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.identity.scopes import Scopes, matches, pattern_of
from penstock.identity.users import Tag
from penstock.model.errors import InvalidArgumentError, NotAuthenticatedError
from penstock.model.records import Access


def allows(scopes, access, vhost, name):
    allowance = Scopes.read(scopes, "mq.").in_vhost(vhost)
    return allowance is not None and allowance.allows(access, name)


@pytest.mark.parametrize(
    ("scope", "access", "vhost", "name", "is_allowed"),
    [
        ("mq.read:*/*", Access.READ, "/", "jobs", True),
        ("mq.read:*/*", Access.WRITE, "/", "jobs", False),
        ("mq.write:shop/orders", Access.WRITE, "shop", "orders", True),
        ("mq.write:shop/orders", Access.WRITE, "shop", "orders2", False),
        ("mq.write:shop/orders", Access.WRITE, "shops", "orders", False),
        ("mq.configure:%2F/x-*-y", Access.CONFIGURE, "/", "x-1-y", True),
        ("mq.configure:%2F/x-*-y", Access.CONFIGURE, "/", "x-1-z", False),
        ("mq.write:*/*/*", Access.WRITE, "a", "b", True),
        ("mq.write:*/*/only.this", Access.WRITE, "a", "b", True),
        ("mq.write:*/*/*/*", Access.WRITE, "a", "b", False),
        ("other.read:*/*", Access.READ, "/", "jobs", False),
        ("read:*/*", Access.READ, "/", "jobs", False),
        ("mq.read:*", Access.READ, "/", "jobs", False),
        ("mq.read:.*/.*", Access.READ, "/", "jobs", False),
        ("mq.own:*/*", Access.READ, "/", "jobs", False),
        ("mq.readall", Access.READ, "/", "jobs", False),
        ("mq.read:%2F/%2A", Access.READ, "/", "*", True),
        ("mq.read:%2F/%2A", Access.READ, "/", "jobs", False),
        ("mq.read:%2F/%2a", Access.READ, "/", "jobs", False),
        ("mq.read:%2A/jobs", Access.READ, "/", "jobs", False),
        ("mq.read:%2A/jobs", Access.READ, "*", "jobs", True),
        ("mq.read:%2F/%2A-*", Access.READ, "/", "*-jobs", True),
        ("mq.read:%2F/%2A-*", Access.READ, "/", "a-jobs", False),
        ("mq.read:%2F/%252A", Access.READ, "/", "%2A", True),
    ],
)
def test_a_scope_grants_what_it_says(scope, access, vhost, name, is_allowed):
    assert allows([scope], access, vhost, name) is is_allowed


@pytest.mark.parametrize(
    ("scopes", "key", "is_allowed", "is_narrowed"),
    [
        (["mq.write:*/logs"], "anything", True, False),
        (["mq.write:*/logs/*"], "anything", True, False),
        (["mq.write:*/logs/app.*"], "app.error", True, True),
        (["mq.write:*/logs/app.*"], "db.error", False, True),
        (["mq.write:*/logs/app.*", "mq.write:*/lo*"], "db.error", True, False),
        (["mq.read:*/logs/app.*", "mq.write:*/logs/db.*"], "app.error", False, True),
        (["mq.write:*/logs/a%2Fb"], "a/b", True, True),
        (["mq.write:*/logs/%2A"], "*", True, True),
        (["mq.write:*/logs/%2A"], "a", False, True),
        (["mq.write:*/logs/{username}.*"], "anna.x", True, True),
        (["mq.write:*/logs/{username}.*"], "otto.x", False, True),
        (["mq.write:*/logs/{vhost}.*"], "shop.x", True, True),
        (["mq.write:*/logs/{evil}.*"], "anna.x", False, True),
        (["mq.write:*/logs/{nobody}"], "{nobody}", True, True),
    ],
)
def test_a_third_part_says_which_routing_keys(scopes, key, is_allowed, is_narrowed):
    read = Scopes.read(scopes, "mq.")
    allowance = read.in_vhost("shop", {"username": "anna", "evil": "*"})

    assert allowance is not None
    assert allowance.allows_key(Access.WRITE, "logs", key) is is_allowed
    assert allowance.narrows_keys("logs") is is_narrowed


def test_tags_come_in_scopes_and_unknown_ones_are_passed_over():
    scopes = Scopes.read(["mq.tag:administrator", "mq.tag:king", "tag:monitoring", "mq.tag:administrator"], "mq.")

    assert scopes.tags == (Tag.ADMINISTRATOR,)
    assert scopes.in_vhost("/") is None


@given(st.text("ab*", max_size=8), st.text("ab", max_size=8))
def test_a_star_is_any_text(pattern, text):
    expected = re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), text) is not None

    assert matches(pattern_of(pattern), text) is expected


def test_a_pattern_full_of_stars_is_decided_in_few_steps():
    """A backtracking match would practically never end; the suite's own time limit detects it."""
    assert not matches(pattern_of("*a" * 120 + "b"), "a" * 255)


def token_user(**claims):
    from penstock.identity import TokenRules, token_user_of

    return token_user_of({"exp": 100, **claims}, TokenRules("mq", "mq.", ("user", "sub"), ("extra",)))


def test_a_token_s_name_is_the_first_claim_that_is_there():
    assert token_user(sub="s", user="u").name == "u"
    assert token_user(sub="system:serviceaccount:shop:default").name == "system:serviceaccount:shop:default"
    assert token_user(sub="s").expires_at_ms == 100_000


@pytest.mark.parametrize("claims", [{}, {"sub": 7}, {"sub": ""}, {"sub": "a\nb"}, {"sub": "s", "exp": True}])
def test_a_token_without_a_name_or_an_end_lets_nobody_in(claims):
    with pytest.raises((NotAuthenticatedError, InvalidArgumentError)):
        token_user(**claims)


def test_scopes_are_found_wherever_they_may_stand():
    found = token_user(
        sub="s",
        scope="mq.read:a/* openid",
        extra=["mq.read:b/*", 7],
        resource_access={"mq": {"roles": ["mq.read:c/*"]}, "other": {"roles": ["mq.read:d/*"]}},
    )

    assert [vhost for vhost in "abcd" if found.allowance(vhost) is not None] == ["a", "b", "c"]
