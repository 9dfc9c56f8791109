"""Exact bytes of frames: a golden one by hand, and refusals."""

import pytest

from penstock.model.names import ExchangeName, QueueId, QueueName, RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue
from penstock.storage.amqp_frames import (
    Bound,
    Declared,
    ExchangeDeleted,
    FrameError,
    QueueDeleted,
    Unbound,
    decode,
    encode,
    frame_size,
)

# queue.declare as a client would send it: type, channel, size | 50,10 | reserved | name | durable | one argument | end
QUEUE_DECLARE = bytes.fromhex(
    "01 0000 00000023  0032 000a  0000  04 6a6f6273  02  00000013 0d 782d70656e73746f636b2d6964 49 00000007".replace(
        " ", ""
    )
) + bytes([0xCE])
EXCHANGE_BIND = bytes.fromhex("01000000000011 0028 001e 0000 0162 0161 016b 00 00000000 ce".replace(" ", ""))
QUEUE_UNBIND = bytes.fromhex("01000000000010 0032 0032 0000 0171 0161 016b 00000000 ce".replace(" ", ""))


def test_a_queue_declare_is_the_frame_that_a_client_would_send():
    queue = Queue(QueueId(7), QueueName("jobs"))

    assert encode(Declared(queue)) == QUEUE_DECLARE
    assert decode(QUEUE_DECLARE) == Declared(queue)


def test_an_exchange_bind_names_the_destination_first():
    binding = Binding(ExchangeName("a"), DestinationKind.EXCHANGE, ExchangeName("b"), RoutingKey("k"))

    assert encode(Bound(binding)) == EXCHANGE_BIND
    assert decode(EXCHANGE_BIND) == Bound(binding)


def test_a_queue_unbind_has_no_bits():
    binding = Binding(ExchangeName("a"), DestinationKind.QUEUE, QueueName("q"), RoutingKey("k"))

    assert encode(Unbound(binding)) == QUEUE_UNBIND
    assert decode(QUEUE_UNBIND) == Unbound(binding)


def test_the_durability_of_a_queue_has_another_name_in_old_directories():
    """It is read, because an argument that is passed over would change what a confirm promises."""
    old = Queue(QueueId(7), QueueName("q"), arguments={"x-level": "disk"})

    assert decode(encode(Declared(old))) == Declared(
        Queue(QueueId(7), QueueName("q"), arguments={"x-durability": "disk"})
    )


def test_the_shard_is_another_argument_of_the_frame_unless_it_is_the_first():
    queue = Queue(QueueId(7), QueueName("jobs"), shard=2)
    frame = encode(Declared(queue))

    assert decode(frame) == Declared(queue)
    assert b"x-penstock-shard" not in encode(Declared(Queue(QueueId(7), QueueName("jobs"))))


@pytest.mark.parametrize("shard", [-1, 65_536, True, "2", 2.0])
def test_a_shard_that_is_no_number_of_one_is_refused(shard):
    queue = Queue(QueueId(7), QueueName("jobs"), arguments={"x-penstock-shard": shard})

    with pytest.raises(FrameError, match="the queue 'jobs' has no usable x-penstock-shard"):
        decode(encode(Declared(queue)))


def test_the_queue_id_is_no_argument_of_the_queue():
    queue = Queue(QueueId(7), QueueName("q"), arguments={"x-durability": "os"})

    decoded = decode(encode(Declared(queue)))

    assert isinstance(decoded, Declared)
    assert decoded.thing == queue
    assert decoded.thing.arguments == {"x-durability": "os"}


@pytest.mark.parametrize(
    "change",
    [
        Declared(Exchange(ExchangeName("e"), ExchangeKind.TOPIC, durable=True, auto_delete=True, internal=True)),
        ExchangeDeleted(ExchangeName("e")),
        QueueDeleted(QueueName("q")),
    ],
)
def test_each_change_comes_back(change):
    assert decode(encode(change)) == change


def test_a_queue_without_an_id_is_refused():
    frame = encode(Declared(Queue(QueueId(7), QueueName("q")))).replace(b"x-penstock-id", b"x-penstock-xx")

    with pytest.raises(FrameError, match="x-penstock-id"):
        decode(frame)


def test_a_wrong_end_is_named_with_its_place():
    frame = QUEUE_DECLARE[:-1] + b"\x00"

    with pytest.raises(FrameError, match="0xce") as caught:
        decode(frame)

    assert caught.value.offset == len(frame) - 1


def test_a_frame_of_another_method_is_refused():
    frame = QUEUE_DECLARE.replace(b"\x00\x32\x00\x0a", b"\x00\x3c\x00\x28")

    with pytest.raises(FrameError, match="60,40"):
        decode(frame)


def test_a_size_that_no_frame_has_is_refused_before_anything_is_read():
    with pytest.raises(FrameError, match="size"):
        frame_size(b"\x01\0\0\xff\xff\xff\xff", 0)
