"""Messages that came before their receiver: which are kept, and which are dropped."""

from penstock.cluster.early import EarlyMessages
from penstock.native import PeerMessage

ONE, OTHER = b"1" * 16, b"2" * 16


def kept(messages: EarlyMessages, shard: bytes = ONE) -> list[bytes]:
    return [message.content for message in messages.take(shard)]


def put(messages: EarlyMessages, *contents: bytes, broker: int = 1, shard: bytes = ONE) -> None:
    for content in contents:
        messages.put(PeerMessage(broker=broker, shard=shard, content=content))


def test_messages_are_taken_once_in_their_order_by_shard() -> None:
    messages = EarlyMessages()
    put(messages, b"a", b"b")
    put(messages, b"c", shard=OTHER)

    assert kept(messages) == [b"a", b"b"]
    assert kept(messages) == []
    assert kept(messages, OTHER) == [b"c"]


def test_the_oldest_messages_are_dropped_where_they_are_too_many_or_too_large() -> None:
    messages = EarlyMessages(count_max=3, bytes_max=10)
    put(messages, b"a", b"b", b"c", b"d")
    assert kept(messages) == [b"b", b"c", b"d"]

    put(messages, b"12345", b"67890", b"x")
    assert kept(messages) == [b"67890", b"x"]

    put(messages, b"small", b"larger than all")
    assert kept(messages) == []


def test_bytes_that_were_taken_or_forgotten_do_not_count() -> None:
    messages = EarlyMessages(bytes_max=10)
    put(messages, b"12345")
    put(messages, b"67890", broker=2, shard=OTHER)
    messages.forget(2)
    put(messages, b"abcde", shard=OTHER)

    assert (kept(messages), kept(messages, OTHER)) == ([b"12345"], [b"abcde"])
    put(messages, b"1234567890")
    assert kept(messages) == [b"1234567890"]
