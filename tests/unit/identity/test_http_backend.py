"""Answers of a server as RabbitMQ's: who comes in, what they may, how long it holds; and the order of back-ends."""

import asyncio

import pytest

from penstock.identity import Tag, UndecidedError
from penstock.identity.http_backend import HttpBackend, HttpUrls
from penstock.identity.sign_in import NOT_HERE, SignIn
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing
from penstock.model.records import Access
from support.grpc_fakes import FakeClock

URLS = HttpUrls("user", "vhost", "resource")


class Server:
    def __init__(self):
        self.clock = FakeClock()
        self.answers = {"user": "allow administrator king", "vhost": "allow", "resource": "deny"}
        self.asked = []
        self.backend = HttpBackend(URLS, 10, self.ask, self.clock)

    async def ask(self, url, form):
        self.asked.append((url, dict(form)))
        return self.answers[url]


def play(scenario):
    async def run():
        await scenario(Server())

    asyncio.run(run())


async def decided(decide):
    """As the front end does it: asks until nothing is open."""
    while True:
        try:
            return decide()
        except UndecidedError as undecided:
            await undecided.ask()


def test_a_user_comes_in_with_the_tags_of_the_answer():
    async def scenario(server):
        person = await server.backend.log_in("anna", "secret", is_loopback=False)

        assert (person.name, person.tags) == ("anna", (Tag.ADMINISTRATOR,))
        assert server.asked == [("user", {"username": "anna", "password": "secret"})]

    play(scenario)


@pytest.mark.parametrize("answer", ["deny", "", "  ", "allowed", "<html>"])
def test_every_answer_but_allow_is_a_refusal(answer):
    async def scenario(server):
        server.answers = dict.fromkeys(server.answers, answer)
        with pytest.raises(NotAuthenticatedError):
            await server.backend.log_in("anna", "secret", is_loopback=False)

    play(scenario)


def test_a_permission_is_asked_for_when_it_is_needed_and_kept_a_while():
    async def scenario(server):
        person = await server.backend.log_in("anna", "secret", is_loopback=False)
        allowance = await decided(lambda: person.allowance("/"))

        for _ in range(3):
            assert not await decided(lambda: allowance.allows(Access.WRITE, "jobs", "queue"))
        assert server.asked[1:] == [
            ("vhost", {"username": "anna", "vhost": "/", "tags": "administrator"}),
            (
                "resource",
                {
                    "username": "anna",
                    "vhost": "/",
                    "resource": "queue",
                    "name": "jobs",
                    "permission": "write",
                    "tags": "administrator",
                },
            ),
        ]

        server.answers["resource"] = "allow"
        server.clock.ms += 10_000
        assert await decided(lambda: allowance.allows(Access.WRITE, "jobs", "queue"))

    play(scenario)


def test_routing_keys_are_asked_about_where_there_is_somebody_to_ask():
    async def scenario(server):
        person = await server.backend.log_in("anna", "secret", is_loopback=False)
        allowance = await decided(lambda: person.allowance("/"))
        assert not allowance.narrows_keys("logs")
        assert allowance.allows_key(Access.WRITE, "logs", "a.b")

        server.answers["topic"] = "allow"
        backend = HttpBackend(HttpUrls("user", "vhost", "resource", "topic"), 10, server.ask, server.clock)
        person = await backend.log_in("anna", "secret", is_loopback=False)
        allowance = await decided(lambda: person.allowance("/"))
        assert allowance.narrows_keys("logs")
        assert await decided(lambda: allowance.allows_key(Access.WRITE, "logs", "a.b"))
        assert server.asked[-1] == (
            "topic",
            {
                "username": "anna",
                "vhost": "/",
                "resource": "topic",
                "name": "logs",
                "permission": "write",
                "routing_key": "a.b",
                "tags": "administrator",
                "variable_map.username": "anna",
                "variable_map.vhost": "/",
            },
        )

    play(scenario)


def test_a_closed_vhost_is_none():
    async def scenario(server):
        server.answers["vhost"] = "deny"
        person = await server.backend.log_in("anna", "secret", is_loopback=False)
        assert await decided(lambda: person.allowance("/")) is None

    play(scenario)


class Fixed:
    """A back-end that always says the same."""

    def __init__(self, result):
        self.result = result

    async def log_in(self, name, password, *, is_loopback):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result

    async def log_in_by_token(self, token):
        return await self.log_in("", token, is_loopback=False)


UNKNOWN, NOT_MINE = NotAuthenticatedError("anna"), NotAuthenticatedError("", NOT_HERE)
DOWN = FaultError(Thing("server", "http://inside.example"), "is down", "wait")


@pytest.mark.parametrize("results", [("here",), (UNKNOWN, "here", "there"), (DOWN, "here"), (NOT_MINE, "here")])
def test_the_first_back_end_that_knows_somebody_counts(results):
    sign_in = SignIn([Fixed(result) for result in results])

    assert asyncio.run(sign_in.log_in("anna", "x", is_loopback=False)) == "here"
    assert asyncio.run(sign_in.log_in_by_token("x")) == "here"


def test_nobody_knows_somebody_and_the_first_real_refusal_is_told():
    sign_in = SignIn([Fixed(NOT_MINE), Fixed(UNKNOWN)])

    with pytest.raises(NotAuthenticatedError, match="password"):
        asyncio.run(sign_in.log_in("anna", "x", is_loopback=False))


def test_a_back_end_that_is_down_is_not_named_to_strangers():
    with pytest.raises(FaultError) as caught:
        asyncio.run(SignIn([Fixed(UNKNOWN), Fixed(DOWN)]).log_in("anna", "x", is_loopback=False))

    assert "inside" not in str(caught.value)
