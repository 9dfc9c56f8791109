"""Calls between brokers: answered, refused or lost, over links in memory."""

import asyncio

import pytest

from penstock.cluster.calls import (
    CALL_BYTES_MAX,
    Calls,
    Handler,
    Kind,
    LostCallError,
    Message,
    NotCarriedOutError,
    decode,
    encode,
)

DOUBLE, REFUSE, LOSE, FAIL = range(4)


async def double(content: bytes) -> bytes:
    return content * 2


async def refuse(_: bytes) -> bytes:
    raise NotCarriedOutError


async def lose(_: bytes) -> bytes:
    raise LostCallError


async def fail(_: bytes) -> bytes:
    raise AssertionError


HANDLERS: dict[int, Handler] = {DOUBLE: double, REFUSE: refuse, LOSE: lose, FAIL: fail}


class Pair:
    """The brokers 1 and 2, and the link between them."""

    def __init__(self, call_s: float = 60.0) -> None:
        self.is_up = True
        self.loses = False
        self.one = Calls(lambda _, content: self._pass(self.two, 1, content), {}, 2**64 - 2, call_s, (DOUBLE,))
        self.two = Calls(lambda _, content: self._pass(self.one, 2, content), HANDLERS, 7, call_s)

    def _pass(self, to: Calls, broker: int, content: bytes) -> bool:
        if self.is_up and not self.loses:
            asyncio.get_running_loop().call_soon(to.received, broker, content)
        return self.is_up


def test_each_call_gets_its_own_answer() -> None:
    async def run() -> None:
        pair = Pair()
        calls = [pair.one.call(2, DOUBLE, content) for content in (b"a", b"", b"b")]
        assert await asyncio.gather(*calls) == [b"aa", b"", b"bb"]

    asyncio.run(run())


@pytest.mark.parametrize(
    ("method", "error"),
    [(REFUSE, NotCarriedOutError), (LOSE, LostCallError), (FAIL, LostCallError), (9, NotCarriedOutError)],
)
def test_a_call_that_is_not_answered_says_whether_it_may_have_been_carried_out(
    method: int, error: type[Exception]
) -> None:
    async def run() -> None:
        with pytest.raises(error):
            await Pair().one.call(2, method, b"a")

    asyncio.run(run())


def test_a_call_to_a_broker_that_is_not_connected_is_not_carried_out() -> None:
    async def run() -> None:
        pair = Pair()
        pair.is_up = False
        with pytest.raises(NotCarriedOutError):
            await pair.one.call(2, DOUBLE, b"a")

    asyncio.run(run())


def test_a_call_ends_with_its_connection_or_its_time() -> None:
    async def run() -> None:
        pair = Pair()
        pair.loses = True
        call = asyncio.ensure_future(pair.one.call(2, DOUBLE, b"a"))
        await asyncio.sleep(0)
        pair.one.disconnected(3)
        pair.one.disconnected(2)
        with pytest.raises(LostCallError):
            await call

        pair = Pair(call_s=0.0)
        pair.loses = True
        with pytest.raises(LostCallError):
            await pair.one.call(2, DOUBLE, b"a")

    asyncio.run(run())


def test_a_call_or_an_answer_that_is_too_large_is_not_sent() -> None:
    async def run() -> None:
        with pytest.raises(NotCarriedOutError):
            await Pair().one.call(2, DOUBLE, bytes(CALL_BYTES_MAX + 1))
        with pytest.raises(LostCallError):
            await Pair().one.call(2, DOUBLE, bytes(CALL_BYTES_MAX))

    asyncio.run(run())


@pytest.mark.parametrize("content", [b"", b"\x01", b"\x09" + bytes(9)])
def test_bytes_that_are_no_message_are_ignored(content: bytes) -> None:
    assert decode(content) is None
    Pair().one.received(2, content)


def test_an_answer_to_an_earlier_process_is_ignored() -> None:
    async def run() -> None:
        sent: list[bytes] = []

        def send(_: int, content: bytes) -> bool:
            sent.append(content)
            return True

        earlier, later = Calls(send, {}, 5), Calls(send, {}, 50)
        calls = [asyncio.ensure_future(each.call(2, DOUBLE, b"a")) for each in (earlier, later)]
        await asyncio.sleep(0)
        to_earlier, to_later = (decode(content) for content in sent)
        assert to_earlier is not None
        assert to_later is not None

        later.received(2, encode(Message(Kind.ANSWER, DOUBLE, to_earlier.number, b"old")))
        later.received(2, encode(Message(Kind.ANSWER, DOUBLE, to_later.number, b"new")))

        assert await calls[1] == b"new"
        earlier.disconnected(2)
        with pytest.raises(LostCallError):
            await calls[0]

    asyncio.run(run())


def test_a_call_that_waits_ends_when_its_broker_stops() -> None:
    async def run() -> None:
        pair = Pair()
        pair.loses = True
        call = asyncio.ensure_future(pair.one.call(2, DOUBLE, b"a"))
        await asyncio.sleep(0)

        await pair.one.close()

        with pytest.raises(LostCallError, match="is stopping"):
            await call

    asyncio.run(run())


def test_a_call_to_a_leader_ends_when_another_broker_leads() -> None:
    """A broker that stood still was waited for, and nothing was published until the time of the call was over."""

    async def run() -> None:
        pair = Pair()
        pair.loses = True
        to_leader, to_other = (asyncio.ensure_future(pair.one.call(2, method, b"a")) for method in (DOUBLE, REFUSE))
        await asyncio.sleep(0)

        pair.one.deposed(3)
        pair.one.deposed(2)

        with pytest.raises(LostCallError, match="does not lead any more"):
            await to_leader
        assert not to_other.done()
        to_other.cancel()

    asyncio.run(run())
