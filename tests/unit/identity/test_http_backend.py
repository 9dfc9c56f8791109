"""Answers in RabbitMQ's HTTP protocol: users, permissions, and how long they hold."""

import asyncio

import pytest

from penstock.identity import Tag, UndecidedError
from penstock.identity.http_backend import HttpBackend, HttpUrls
from penstock.kit.settings import DECISIONS_WAITING_MAX
from penstock.model.errors import FaultError, NotAuthenticatedError
from penstock.model.records import Access
from support.grpc_fakes import FakeClock

URLS = HttpUrls("user", "vhost", "resource")


class Server:
    def __init__(self):
        self.clock = FakeClock()
        self.answers = {"user": "allow administrator king", "vhost": "allow", "resource": "deny"}
        self.asked = []
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.backend = HttpBackend(URLS, 10, self.ask, self.clock)

    async def ask(self, url, form):
        self.asked.append((url, dict(form)))
        await self.may_answer.wait()
        return self.answers[url]


def play(scenario):
    async def run():
        await scenario(Server())

    asyncio.run(run())


async def decided(decide):
    """Decide as the front end does: ask until nothing is undecided."""
    while True:
        try:
            return decide()
        except UndecidedError as undecided:
            await undecided.ask()


def test_a_user_comes_in_with_the_tags_of_the_answer():
    async def scenario(server):
        identity = await server.backend.log_in("anna", "secret")

        assert (identity.name, identity.tags) == ("anna", (Tag.ADMINISTRATOR,))
        assert server.asked == [("user", {"username": "anna", "password": "secret"})]

    play(scenario)


@pytest.mark.parametrize("answer", ["deny", "", "  ", "allowed", "<html>"])
def test_every_answer_but_allow_is_a_refusal(answer):
    async def scenario(server):
        server.answers = dict.fromkeys(server.answers, answer)
        with pytest.raises(NotAuthenticatedError):
            await server.backend.log_in("anna", "secret")

    play(scenario)


def test_a_permission_is_asked_for_when_it_is_needed_and_kept_a_while():
    async def scenario(server):
        identity = await server.backend.log_in("anna", "secret")
        allowance = await decided(lambda: identity.allowance("/"))

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
        identity = await server.backend.log_in("anna", "secret")
        allowance = await decided(lambda: identity.allowance("/"))
        assert not allowance.narrows_keys("logs")
        assert allowance.allows_key(Access.WRITE, "logs", "a.b")

        server.answers["topic"] = "allow"
        backend = HttpBackend(HttpUrls("user", "vhost", "resource", "topic"), 10, server.ask, server.clock)
        identity = await backend.log_in("anna", "secret")
        allowance = await decided(lambda: identity.allowance("/"))
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
        identity = await server.backend.log_in("anna", "secret")
        assert await decided(lambda: identity.allowance("/")) is None

    play(scenario)


def test_a_question_that_many_have_at_once_is_asked_once():
    async def scenario(server):
        server.may_answer.clear()
        waiting = [asyncio.ensure_future(server.backend.log_in("anna", "secret")) for _ in range(100)]
        for _ in range(5):
            await asyncio.sleep(0)
        server.may_answer.set()

        assert {identity.name for identity in await asyncio.gather(*waiting)} == {"anna"}
        assert len(server.asked) == 1

    play(scenario)


def test_a_server_that_hangs_keeps_only_so_many_calls_waiting():
    async def scenario(server):
        server.may_answer.clear()
        waiting = [
            asyncio.ensure_future(server.backend.log_in(f"u{number}", "x")) for number in range(DECISIONS_WAITING_MAX)
        ]
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(FaultError, match="retry later"):
            await server.backend.log_in("anna", "secret")

        server.may_answer.set()
        await asyncio.gather(*waiting)
        assert (await server.backend.log_in("anna", "secret")).name == "anna"

    play(scenario)
