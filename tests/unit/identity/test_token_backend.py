"""Tokens: signature, audience and time are checked, and changed keys are found."""

import asyncio
import base64
import json

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from penstock.identity import TokenRules
from penstock.identity.token_backend import TokenBackend
from penstock.identity.token_keys import FETCH_SECONDS_MIN, STALE_SECONDS_MAX, TokenKeys
from penstock.kit.settings import KEY_WAITERS_MAX
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing
from penstock.model.records import Access
from support.grpc_fakes import FakeClock
from support.issuer import Issuer

NOW = 1_000
CACHE_SECONDS = 3_600


class World:
    def __init__(self, url=""):
        self.issuer = Issuer()
        self.clock = FakeClock()
        self.clock.ms = NOW * 1_000
        self.is_down = False
        self.tries = 0
        self.answers = asyncio.Event()
        self.answers.set()
        keys = TokenKeys(self.issuer.url, url, CACHE_SECONDS, self.fetch, self.clock)
        rules = TokenRules("mq", "mq.")
        self.backend = TokenBackend(keys, rules, self.issuer.url, 10, self.clock)

    async def fetch(self, url):
        self.tries += 1
        await self.answers.wait()
        if self.is_down:
            raise FaultError(Thing("server", url), "is down", "wait")
        return self.issuer.page(url)

    def show(self, token):
        return self.backend.log_in_by_token(token)

    def token(self, **claims):
        return self.issuer.token(NOW + 10_000_000, **claims)

    def wait(self, seconds):
        self.clock.ms += int(seconds * 1_000)


async def ticks():
    """Let pending work run that needs no outside input."""
    for _ in range(20):
        await asyncio.sleep(0)


def play(scenario, **options):
    async def run():
        await scenario(World(**options))

    asyncio.run(run())


def test_a_token_lets_in_by_its_name_with_its_scopes():
    async def scenario(world):
        identity = await world.show(world.issuer.token(NOW + 60, "mq.write:%2F/* mq.tag:monitoring"))

        assert (identity.name, identity.is_administrator, identity.expires_at_ms) == ("anna", False, (NOW + 70) * 1_000)
        assert identity.allowance("/").allows(Access.WRITE, "jobs")
        assert not identity.allowance("/").allows(Access.READ, "jobs")
        assert identity.allowance("other") is None
        again = await world.backend.log_in("whoever", world.issuer.token(NOW + 60))
        assert again.name == "anna"

    play(scenario)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "other"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"iss": None},
        {"sub": None},
        {"nbf": NOW + 11},
        {"exp": None},
        {"exp": NOW - 10},
        {"key": Ed25519PrivateKey.generate()},
        {"kid": "unknown"},
        {"kid": None},
    ],
)
def test_a_token_that_is_not_for_this_broker_lets_nobody_in(claims):
    async def scenario(world):
        with pytest.raises(NotAuthenticatedError):
            await world.show(world.issuer.token(**{"exp": NOW + 60, **claims}))

    play(scenario)


@pytest.mark.parametrize("token", ["", "a.b.c", "..", "x" * 20_000 + "..", "not a token"])
def test_what_is_no_token_lets_nobody_in_and_is_no_error(token):
    async def scenario(world):
        with pytest.raises(NotAuthenticatedError):
            await world.show(token)

    play(scenario)


@pytest.mark.parametrize("algorithm", ["none", "HS256"])
def test_a_token_signed_with_the_public_key_as_a_secret_or_with_nothing_lets_nobody_in(algorithm):
    async def scenario(world):
        claims = {"iss": world.issuer.url, "aud": "mq", "sub": "anna", "exp": NOW + 60}
        head = {"kid": "first", "alg": algorithm, "typ": "JWT"}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (head, claims)]
        forged = b".".join((*parts, b"")).decode()
        if algorithm == "HS256":
            public = world.issuer.page("/keys")["keys"][0]["x"]
            forged = jwt.encode(claims, public, "HS256", {"kid": "first"})

        with pytest.raises(NotAuthenticatedError, match="published key"):
            await world.show(forged)

    play(scenario)


def test_a_token_ends_while_it_is_remembered():
    async def scenario(world):
        token = world.issuer.token(NOW + 60)
        await world.show(token)
        world.clock.ms = (NOW + 69) * 1_000
        await world.show(token)

        world.clock.ms = (NOW + 70) * 1_000
        with pytest.raises(NotAuthenticatedError, match="new token"):
            await world.show(token)

    play(scenario)


def test_keys_are_fetched_once_and_again_for_one_that_is_new():
    async def scenario(world):
        await asyncio.gather(*(world.show(world.issuer.token(NOW + 60 + n)) for n in range(20)))
        assert len(world.issuer.fetched) == 2, "the discovery and the keys"

        world.issuer.rotate("second")
        world.clock.ms += int(FETCH_SECONDS_MIN * 1_000)
        assert (await world.show(world.issuer.token(NOW + 60))).name == "anna"
        assert len(world.issuer.fetched) == 4

    play(scenario)


def test_made_up_keys_do_not_make_the_broker_a_hammer():
    async def scenario(world):
        for number in range(50):
            with pytest.raises(NotAuthenticatedError):
                await world.show(world.issuer.token(NOW + 60, kid=f"k{number}"))
        assert len(world.issuer.fetched) == 1, "its keys, once"

    play(scenario, url="https://issuer.example/keys")


def test_a_provider_that_is_down_hurts_only_those_whose_key_is_not_known():
    async def scenario(world):
        await world.show(world.issuer.token(NOW + 60))
        world.is_down = True
        world.clock.ms += 4_000_000
        later = world.clock.ms // 1_000 + 60

        assert (await world.show(world.issuer.token(later))).name == "anna"
        world.clock.ms += int(FETCH_SECONDS_MIN * 1_000)
        world.issuer.rotate("second")
        with pytest.raises(FaultError):
            await world.show(world.issuer.token(later))

    play(scenario)


def test_an_issuer_that_calls_itself_something_else_is_not_believed():
    async def scenario(world):
        token = world.issuer.token(NOW + 60)
        world.issuer.url = "https://other.example"
        with pytest.raises(FaultError, match=r"other\.example"):
            await world.show(token)

    play(scenario)


KEYS_URL = "https://issuer.example/keys"


def test_a_token_that_was_used_ends_with_its_key():
    """It was remembered until its own end, also when the key was dropped because it had leaked."""

    async def scenario(world):
        used = world.token()
        await world.show(used)
        world.issuer.rotate("second")
        world.wait(FETCH_SECONDS_MIN)
        await world.show(world.token())

        with pytest.raises(NotAuthenticatedError, match="publishes"):
            await world.show(used)

    play(scenario, url=KEYS_URL)


def test_keys_are_fetched_again_when_tokens_are_used_that_are_remembered():
    async def scenario(world):
        used = world.token()
        await world.show(used)
        world.issuer.rotate("second")
        world.wait(CACHE_SECONDS + 1)

        assert (await world.show(used)).name == "anna", "the old keys count while the new ones are on their way"
        await ticks()
        with pytest.raises(NotAuthenticatedError):
            await world.show(used)

    play(scenario, url=KEYS_URL)


def test_a_removed_key_is_reported_and_ends_what_its_tokens_opened():
    async def scenario(world):
        removals = []
        world.backend.watch_keys(lambda: removals.append(world.clock.ms))
        opened = await world.show(world.token())
        world.issuer.keys["second"] = Ed25519PrivateKey.generate()
        world.wait(CACHE_SECONDS + 1)
        world.backend.refresh_keys()
        await ticks()
        world.backend.check_open(opened)
        assert removals == [], "a key that is added ends nothing"

        world.issuer.rotate("third")
        world.wait(CACHE_SECONDS + 1)
        world.backend.refresh_keys()
        await ticks()

        assert removals == [world.clock.ms]
        with pytest.raises(NotAuthenticatedError, match="its key was removed"):
            world.backend.check_open(opened)

    play(scenario, url=KEYS_URL)


def test_keys_that_became_too_old_end_nothing_that_is_open():
    async def scenario(world):
        opened = await world.show(world.token())
        world.is_down = True
        world.wait(CACHE_SECONDS + STALE_SECONDS_MAX + 1)
        world.backend.refresh_keys()

        world.backend.check_open(opened)

    play(scenario, url=KEYS_URL)


def test_open_streams_let_keys_be_fetched_again_after_an_issuer_was_down_for_very_long():
    async def scenario(world):
        opened = await world.show(world.token())
        world.is_down = True
        for _ in range(2):
            world.wait(CACHE_SECONDS + STALE_SECONDS_MAX + 1)
            world.backend.refresh_keys()
            await ticks()
        world.issuer.rotate("second")
        world.is_down = False
        world.wait(CACHE_SECONDS + 1)

        world.backend.refresh_keys()
        await ticks()

        with pytest.raises(NotAuthenticatedError, match="its key was removed"):
            world.backend.check_open(opened)

    play(scenario, url=KEYS_URL)


def test_tokens_stay_remembered_when_the_same_keys_come_again():
    async def scenario(world):
        first = await world.show(used := world.token())
        world.wait(CACHE_SECONDS + 1)
        await world.show(used)
        await ticks()

        assert world.tries == 2
        assert await world.show(used) is first

    play(scenario, url=KEYS_URL)


def test_a_known_key_waits_for_no_issuer():
    async def scenario(world):
        await world.show(world.token())
        world.wait(CACHE_SECONDS + 1)
        world.answers.clear()
        made_up = [asyncio.ensure_future(world.show(world.token(kid=f"k{number}"))) for number in range(200)]
        await ticks()

        assert (await world.show(world.token(jti="another"))).name == "anna"
        assert world.tries == 2, "all wait for one fetch"
        world.answers.set()
        answers = await asyncio.gather(*made_up, return_exceptions=True)
        assert {type(answer) for answer in answers} == {NotAuthenticatedError}
        assert world.tries == 2, "and it is the answer for all of them"

    play(scenario, url=KEYS_URL)


def test_a_fetch_that_failed_is_the_answer_for_a_while():
    async def scenario(world):
        world.is_down = True
        for number in range(50):
            with pytest.raises(FaultError, match="is down"):
                await world.show(world.token(kid=f"k{number}"))
        assert world.tries == 1

        world.is_down = False
        world.wait(FETCH_SECONDS_MIN)
        assert (await world.show(world.token())).name == "anna"

    play(scenario, url=KEYS_URL)


def test_those_who_wait_for_keys_are_bounded():
    async def scenario(world):
        world.answers.clear()
        waiting = [asyncio.ensure_future(world.show(world.token(jti=str(n)))) for n in range(KEY_WAITERS_MAX)]
        await ticks()
        with pytest.raises(FaultError, match="try again later"):
            await world.show(world.token())

        world.answers.set()
        assert {identity.name for identity in await asyncio.gather(*waiting)} == {"anna"}

    play(scenario, url=KEYS_URL)


def test_a_provider_that_stays_away_is_waited_for_a_day():
    async def scenario(world):
        used = world.token()
        await world.show(used)
        world.is_down = True
        world.wait(CACHE_SECONDS + STALE_SECONDS_MAX)
        assert (await world.show(used)).name == "anna"
        assert (await world.show(world.token(jti="another"))).name == "anna"

        world.wait(1)
        for token in (used, world.token(jti="a third")):
            with pytest.raises(FaultError, match="is down"):
                await world.show(token)

    play(scenario, url=KEYS_URL)
