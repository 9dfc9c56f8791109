"""The frame of verbs: one that needs an answer of another server asks for it and goes on, and is audited once."""

import asyncio

import pytest
import structlog

from penstock.identity import Allowance, Tag, UndecidedError
from penstock.model.errors import AccessRefusedError, FaultError, StoppedError, Thing
from penstock.model.names import ConnectionId, QueueName
from penstock.model.records import Access
from penstock.services import Connection, DeclareQueue, Password, Principal
from penstock.services.verbs import QUESTIONS_MAX
from support.grpc_fakes import World, play


class Asked:
    """A user of another server, which has to be asked about each vhost, name and routing key first."""

    name = "anna"
    tags: tuple[Tag, ...] = ()
    is_administrator = False
    expires_at_ms = None

    def __init__(self, *, forgets: bool = False) -> None:
        self.questions: list[str] = []
        self._forgets = forgets

    def sees_vhost(self, _vhost: str) -> bool:
        return True

    def allowance(self, vhost: str) -> Allowance | None:
        self._need(f"vhost {vhost}")
        return self

    def allows(self, access: Access, name: str, kind: str = "") -> bool:
        self._need(f"{access.value} {kind} {name}")
        return name != "closed"

    def narrows_keys(self, _exchange: str) -> bool:
        return True

    def allows_key(self, _access: Access, _exchange: str, key: str) -> bool:
        self._need(f"key {key}")
        return key != "closed"

    def _need(self, question: str) -> None:
        if question in self.questions and not self._forgets:
            return

        async def ask() -> None:
            await asyncio.sleep(0)
            self.questions.append(question)

        raise UndecidedError(ask)


class Unanswered(Asked):
    """A user of a server that cannot be reached."""

    def allowance(self, vhost: str) -> Allowance | None:
        async def ask() -> None:
            raise FaultError(Thing("server", "http back end"), "does not answer", "try again later")

        raise UndecidedError(ask)


def principal(identity: Asked) -> Principal:
    return Principal(identity, Connection(ConnectionId(1), "192.0.2.7:4000"))


def test_a_verb_asks_another_server_and_goes_on():
    async def scenario(world: World) -> None:
        http_user = Asked()
        wanted = DeclareQueue(QueueName("jobs"), ConnectionId(1))
        assert (await world.services.topology.declare_queue(principal(http_user), "/", wanted)).queue.name == "jobs"
        assert http_user.questions == ["vhost /", "configure queue jobs"]

    play(scenario)


def test_a_verb_that_asked_is_audited_once():
    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as lines, pytest.raises(AccessRefusedError):
            await world.services.topology.delete_queue(principal(Asked()), "/", "closed")
        assert [(line["event"], line["outcome"]) for line in lines] == [("DeleteQueue", "refused")]

    play(scenario)


def test_a_server_whose_answers_do_not_last_is_not_asked_for_ever():
    async def scenario(world: World) -> None:
        http_user = Asked(forgets=True)
        with pytest.raises(StoppedError, match="no lasting answer"):
            await world.services.topology.list_queues(principal(http_user), "/")
        assert len(http_user.questions) == QUESTIONS_MAX

    play(scenario)


def test_each_routing_key_may_be_a_question():
    async def scenario(world: World) -> None:
        keys = [f"key-{number}" for number in range(QUESTIONS_MAX * 2)]
        allowed = await world.services.admission.publish_keys(principal(Asked()), "/", "amq.topic", [*keys, "closed"])
        assert allowed == [*(True for _ in keys), False]

    play(scenario)


def test_a_server_that_does_not_answer_is_a_fault_of_the_verb_and_is_audited():
    async def scenario(world: World) -> None:
        with structlog.testing.capture_logs() as lines, pytest.raises(FaultError, match="does not answer"):
            await world.services.topology.purge_queue(principal(Unanswered()), "/", "jobs")
        assert [(line["event"], line["outcome"]) for line in lines] == [("PurgeQueue", "refused")]

    play(scenario)


def test_a_verb_that_ends_with_a_bug_is_audited_too():
    """Its change may have been made before that."""

    async def scenario(world: World) -> None:
        admin = await world.services.sessions.log_in(Password("admin", "admin"), Connection(ConnectionId(1)))

        async def fail(name: str, *, force: bool = False, forget: object = None) -> None:
            raise OSError(f"a secret about {name}")

        world.accounts.delete_user = fail  # type: ignore[method-assign]
        with structlog.testing.capture_logs() as lines, pytest.raises(OSError, match="secret"):
            await world.services.users.delete_user(admin, "reader")
        (line,) = lines
        assert (line["event"], line["outcome"], line["about"]) == ("DeleteUser", "failed", {"name": "reader"})
        assert "secret" not in repr(line)

    play(scenario)
