"""Calls between the brokers that have a replica of a shard: a question to one broker, and its answer.

A call goes over the connection that the replicas have, and is lost with it. Its number is drawn at the start of a
process, so that a late answer to an earlier process is known as one.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from typing import Final

from penstock.kit.tasks import spawn

CALL_BYTES_MAX: Final = 1024 * 1024
"""The size of a question or an answer."""
CALLS_MAX: Final = 4_096
"""Questions of all other brokers that are being answered. More are refused."""
CALL_S: Final = 10.0
"""A call without an answer ends after this time."""
_HEAD: Final = struct.Struct("<BBQ")


class Kind(IntEnum):
    QUESTION = 1
    ANSWER = 2
    REFUSED = 3
    """The question was not carried out, and will not be."""
    UNKNOWN = 4
    """The question may have been carried out, or may be."""


@dataclass(frozen=True, slots=True)
class Message:
    """A question of a method, or the answer to the question with that number."""

    kind: Kind
    method: int
    number: int
    content: bytes = b""


class NotCarriedOutError(Exception):
    """The question did not arrive, or the other broker refused it."""


class LostCallError(Exception):
    """No answer came: the question may have been carried out, or may be."""


Handler = Callable[[bytes], Awaitable[bytes]]
"""Answers a question. It raises NotCarriedOutError and LostCallError for what the asking broker is to hear."""


def encode(message: Message) -> bytes:
    return _HEAD.pack(message.kind, message.method, message.number) + message.content


def decode(content: bytes) -> Message | None:
    """Return a message; None for bytes of a version that is not known."""
    if len(content) < _HEAD.size:
        return None
    kind, method, number = _HEAD.unpack_from(content)
    if kind not in Kind.__members__.values():
        return None
    return Message(Kind(kind), method, number, content[_HEAD.size :])


class Calls:
    """The calls of one shard. Invariant: each call that waits ends with its answer, its connection, or its time."""

    def __init__(
        self,
        send: Callable[[int, bytes], bool],
        handlers: Mapping[int, Handler],
        first_number: int,
        call_s: float = CALL_S,
        of_leader: Collection[int] = (),
    ) -> None:
        """`send` sends to the broker of a number and returns whether it is connected; `handlers` are by method.

        `of_leader` are the methods that only the broker answers which leads.
        """
        self._send = send
        self._handlers = handlers
        self._number = first_number
        self._call_s = call_s
        self._of_leader = of_leader
        self._waiting: dict[tuple[int, int], asyncio.Future[bytes]] = {}
        self._asking_leader: set[tuple[int, int]] = set()
        """The calls that wait for an answer of the leader."""
        self._answering: set[asyncio.Task[None]] = set()

    async def call(self, broker: int, method: int, content: bytes) -> bytes:
        """Return the answer of a broker. Raises NotCarriedOutError and LostCallError."""
        if len(content) > CALL_BYTES_MAX:
            raise NotCarriedOutError(f"a call has {len(content)} bytes, and at most {CALL_BYTES_MAX} are possible")
        self._number = (self._number + 1) % 2**64
        key = (broker, self._number)
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._waiting[key] = answered
        if method in self._of_leader:
            self._asking_leader.add(key)
        try:
            if not self._send(broker, encode(Message(Kind.QUESTION, method, self._number, content))):
                raise NotCarriedOutError(f"broker {broker} is not connected")
            async with asyncio.timeout(self._call_s):
                return await answered
        except TimeoutError as error:
            raise LostCallError(f"broker {broker} sent no answer within {self._call_s} s") from error
        finally:
            del self._waiting[key]
            self._asking_leader.discard(key)

    def received(self, broker: int, content: bytes) -> None:
        """Take a message of another broker."""
        message = decode(content)
        if message is None:
            return
        if message.kind is Kind.QUESTION:
            self._take_question(broker, message)
            return
        answered = self._waiting.get((broker, message.number))
        if answered is None or answered.done():
            return
        match message.kind:
            case Kind.ANSWER:
                answered.set_result(message.content)
            case Kind.REFUSED:
                answered.set_exception(NotCarriedOutError(f"broker {broker} refused a call"))
            case _:
                answered.set_exception(LostCallError(f"broker {broker} does not know the outcome of a call"))

    def disconnected(self, broker: int) -> None:
        """End the calls to a broker whose connection broke."""
        for (to, _), answered in self._waiting.items():
            if to == broker and not answered.done():
                answered.set_exception(LostCallError(f"the connection to broker {broker} broke"))

    def deposed(self, broker: int) -> None:
        """End the calls to a broker as the leader, which another one is now: it may stand still for long."""
        for key in self._asking_leader:
            answered = self._waiting[key]
            if key[0] == broker and not answered.done():
                answered.set_exception(LostCallError(f"broker {broker} does not lead any more"))

    async def close(self) -> None:
        """End the answering of questions, and the calls that wait for answers."""
        for answered in self._waiting.values():
            if not answered.done():
                answered.set_exception(LostCallError("this broker is stopping"))
        tasks = list(self._answering)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _take_question(self, broker: int, question: Message) -> None:
        handler = self._handlers.get(question.method)
        if handler is None or len(self._answering) >= CALLS_MAX:
            self._send(broker, encode(Message(Kind.REFUSED, question.method, question.number)))
            return
        unknown = encode(Message(Kind.UNKNOWN, question.method, question.number))
        on_bug = partial(self._after_bug, broker, unknown)
        task = spawn(self._answer(broker, question, handler), name="call of a broker", on_bug=on_bug)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, broker: int, question: Message, handler: Handler) -> None:
        kind, content = Kind.ANSWER, b""
        try:
            content = await handler(question.content)
        except NotCarriedOutError:
            kind = Kind.REFUSED
        except LostCallError:
            kind = Kind.UNKNOWN
        if len(content) > CALL_BYTES_MAX:
            kind, content = Kind.UNKNOWN, b""
        self._send(broker, encode(Message(kind, question.method, question.number, content)))

    def _after_bug(self, broker: int, unknown: bytes, _: Exception) -> None:
        self._send(broker, unknown)
