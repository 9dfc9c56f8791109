"""The order of back ends, and that `guest` is for loopback only, whatever authenticates that name."""

import asyncio

import pytest

from penstock.identity import User
from penstock.identity.sign_in import NotATokenError, SignIn
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing


class Fixed:
    """A back end with a fixed answer."""

    def __init__(self, result):
        self.result = result

    async def log_in(self, name, password, *, source=None):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def log_in_by_token(self, token):
        return await self.log_in("", token)

    def check_open(self, identity):
        del identity

    def refresh_keys(self):
        """Nothing to refresh."""

    def watch_keys(self, removed):
        del removed


UNKNOWN, NOT_MINE = NotAuthenticatedError("anna"), NotATokenError("")
HERE, THERE, GUEST = User("here", ""), User("there", ""), User("guest", "")
DOWN = FaultError(Thing("server", "http://inside.example"), "is down", "wait")


@pytest.mark.parametrize("results", [(HERE,), (UNKNOWN, HERE, THERE), (DOWN, HERE), (NOT_MINE, HERE)])
def test_the_first_back_end_that_knows_somebody_counts(results):
    sign_in = SignIn([Fixed(result) for result in results])

    assert asyncio.run(sign_in.log_in("anna", "x", is_loopback=False)).name == "here"


def test_nobody_knows_somebody_and_the_first_real_refusal_is_told():
    sign_in = SignIn([Fixed(NOT_MINE), Fixed(UNKNOWN)])

    with pytest.raises(NotAuthenticatedError, match="password"):
        asyncio.run(sign_in.log_in("anna", "x", is_loopback=False))


def test_only_a_refusal_by_all_waits_and_for_the_latest():
    """A wrong local password may be a right one, or a token, for the next back end."""
    local, server = NotAuthenticatedError("anna", due=7.0), NotAuthenticatedError("anna", "ask the server")
    sign_in = SignIn([Fixed(server), Fixed(local)])

    with pytest.raises(NotAuthenticatedError, match="ask the server") as refused:
        asyncio.run(sign_in.log_in("anna", "x", is_loopback=False))

    assert refused.value.due == 7.0


def test_a_back_end_that_is_down_is_not_named_to_strangers():
    with pytest.raises(FaultError) as caught:
        asyncio.run(SignIn([Fixed(UNKNOWN), Fixed(DOWN)]).log_in("anna", "x", is_loopback=False))

    assert "inside" not in str(caught.value)


def test_a_token_is_checked_by_what_checks_tokens_alone():
    sign_in = SignIn([Fixed(HERE)], tokens=Fixed(THERE))
    down = SignIn([Fixed(HERE)], tokens=Fixed(DOWN))

    assert asyncio.run(sign_in.log_in_by_token("x", is_loopback=False)).name == "there"
    with pytest.raises(FaultError, match="cannot be authenticated now"):
        asyncio.run(down.log_in_by_token("x", is_loopback=False))


def test_a_broker_without_tokens_says_so():
    """It said "ask another back-end", which no client can do."""
    with pytest.raises(NotAuthenticatedError, match="this broker accepts no tokens"):
        asyncio.run(SignIn([Fixed(HERE)]).log_in_by_token("x", is_loopback=False))


class Named:
    """Certificates that all name one user."""

    def __init__(self, user):
        self.user = user

    def find(self, certificate):
        return self.user


WAYS = [
    lambda sign_in, is_loopback: sign_in.log_in("guest", "x", is_loopback=is_loopback),
    lambda sign_in, is_loopback: sign_in.log_in_by_token("x", is_loopback=is_loopback),
    lambda sign_in, is_loopback: sign_in.log_in_by_certificate(b"x", is_loopback=is_loopback),
]


@pytest.mark.parametrize("log_in", WAYS, ids=["password", "token", "certificate"])
def test_guest_is_for_loopback_only_whatever_vouches_for_the_name(log_in):
    sign_in = SignIn([Fixed(GUEST)], Named(GUEST), Fixed(GUEST))

    assert asyncio.run(log_in(sign_in, True)).name == "guest"
    with pytest.raises(NotAuthenticatedError, match="loopback"):
        asyncio.run(log_in(sign_in, False))


def test_guest_from_elsewhere_is_not_asked_of_the_next_back_end():
    with pytest.raises(NotAuthenticatedError, match="loopback"):
        asyncio.run(SignIn([Fixed(GUEST), Fixed(HERE)]).log_in("guest", "x", is_loopback=False))


def test_a_wrong_password_of_guest_from_elsewhere_is_answered_as_any_other():
    with pytest.raises(NotAuthenticatedError) as caught:
        asyncio.run(SignIn([Fixed(UNKNOWN)]).log_in("guest", "wrong", is_loopback=False))

    assert "loopback" not in str(caught.value)
