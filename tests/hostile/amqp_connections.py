"""AMQP clients that waste resources: silent, slow, with floods of channels and consumers, or without reads."""

import socket
import time
from contextlib import ExitStack
from threading import Event

from hostile.amqp_wire import (
    ACK,
    BODY,
    CHANNEL_OPEN,
    CONFIRM_SELECT,
    DELIVER,
    GET,
    HEADER,
    HEARTBEAT,
    QUEUE_DECLARE_OK,
    QUEUE_DELETE,
    RECOVER,
    START,
    AmqpWire,
    consume,
    content,
    declare_queue,
    frame,
    method,
    publish,
    short,
)
from hostile.target import FIRST_REQUEST_SECONDS, MESSAGE_BYTES_MAX, Case, Target, expect

SILENT_COUNT = 10_000
CHANNELS_MAX = 2_047
SECONDS_MAX = 60
_never = Event()


def ten_thousand_amqp_connections_that_do_not_log_in(target: Target) -> str:
    """Greet, so that each has a conversation, and say no more."""
    with ExitStack() as wires:
        silent = [wires.enter_context(AmqpWire(target.amqp_port)) for _ in range(SILENT_COUNT)]
        with target.amqp() as other:
            other.log_in()
        began = time.monotonic()
        assert all(wire.is_hung_up() for wire in silent), "a connection without a log-in is still open"
        took = time.monotonic() - began + FIRST_REQUEST_SECONDS
        return f"all closed {took:.0f} s at most after they came; others were served"


def _drip(each: socket.socket, data: bytes) -> str:
    began = time.monotonic()
    each.settimeout(0.2)
    for byte in data:
        try:
            each.send(bytes([byte]))
            while each.recv(4_096):
                pass
        except TimeoutError:
            assert time.monotonic() - began < SECONDS_MAX, "a slow sender is still served"
            continue
        except (BrokenPipeError, ConnectionResetError):
            pass
        return f"closed after {time.monotonic() - began:.0f} s"
    raise AssertionError("a slow sender was never stopped")


def a_byte_of_the_amqp_header_now_and_then(target: Target) -> str:
    with target.amqp(greets=False) as wire:
        wire.send(HEADER[:1])
        _never.wait(FIRST_REQUEST_SECONDS / 2)
        return _drip(wire.socket, HEADER[1:4] * 100)


def a_byte_of_an_amqp_log_in_now_and_then(target: Target) -> str:
    with target.amqp() as wire:
        wire.expect(START)
        return _drip(wire.socket, wire.start_ok(short(b"") * 400))


def an_amqp_client_that_misses_its_heartbeats(target: Target) -> str:
    """Log in and say nothing; one that sends heartbeats beside it stays."""
    with target.amqp() as wire, target.amqp() as other:
        wire.log_in(heartbeat=1)
        other.log_in(heartbeat=1)
        began = time.monotonic()
        while not wire.is_hung_up(0.5):
            assert time.monotonic() - began < SECONDS_MAX, "a silent client is still served"
            other.send(frame(HEARTBEAT, 0, b""))
        took = time.monotonic() - began
        other.send(declare_queue(1, b"beats", flags=4))
        other.expect(QUEUE_DECLARE_OK)
        return f"hung up after {took:.0f} s"


def more_amqp_channels_than_were_agreed(target: Target) -> str:
    with target.amqp() as wire:
        wire.log_in()
        wire.send(b"".join(method(number, CHANNEL_OPEN, b"\0") for number in range(2, CHANNELS_MAX + 2)))
        return expect(wire.answer(), "530 NOT_ALLOWED")


def amqp_channels_opened_and_closed_without_a_pause(target: Target) -> str:
    close = method(1, (20, 40), b"\0\xc8" + short(b"") + b"\0\0\0\0")
    flood = (close + method(1, CHANNEL_OPEN, b"\0")) * 50_000
    with target.amqp() as wire:
        wire.log_in()
        sent = wire.send_some(flood, 1)
        return f"took {sent >> 10} of {len(flood) >> 10} KiB"


def two_thousand_amqp_channels_that_each_hold_half_a_message(target: Target) -> str:
    with target.amqp() as wire:
        wire.log_in()
        for number in range(2, 2_001):
            wire.open_channel(number)
        part = frame(BODY, 0, b"x" * 100_000)
        sent = 0
        for number in range(1, 2_001):
            begun = publish(number, b"nowhere") + content(number, MESSAGE_BYTES_MAX)
            wanted = begun + part[:1] + number.to_bytes(2) + part[3:]
            took = wire.send_some(wanted, 1)
            sent += took
            if took < len(wanted):
                break
        return f"took {sent >> 20} of {2_000 * 100_000 >> 20} MiB"


def a_flood_of_amqp_declarations_without_answers(target: Target) -> str:
    """Declare and delete again and again, on one connection: others take turns with it."""
    one = declare_queue(1, b"flood", flags=4 | 16) + method(1, QUEUE_DELETE, b"\0\0" + short(b"flood") + b"\4")
    with target.amqp() as wire:
        wire.log_in()
        sent = wire.send_some(one * 20_000, 1)
        return f"took {sent >> 10} of {len(one) * 20_000 >> 10} KiB"


def a_flood_of_amqp_consumers(target: Target) -> str:
    with target.amqp() as wire:
        wire.log_in()
        wire.send(declare_queue(1, b"crowd", flags=4))
        wire.expect(QUEUE_DECLARE_OK)
        consumers = [consume(1, b"crowd", b"c%d" % number, 2 | 8) for number in range(2_000)]
        sent = wire.send_some(b"".join(consumers), 1)
        wire.send(consume(1, b"crowd", b"c0"))
        return expect(wire.answer(), "530 NOT_ALLOWED") + f" after {sent >> 10} KiB"


def twenty_megabytes_in_an_amqp_queue(target: Target) -> None:
    with target.connect() as connection:
        connection.declare_queue("unread")
        connection.publish_many([b"x" * 10_000] * 2_000, routing_key="unread")


def an_amqp_consumer_that_never_reads(target: Target) -> str:
    """Consume on 50 connections, without a prefetch and without acks, and read nothing."""
    with ExitStack() as wires:
        for _ in range(50):
            wire = wires.enter_context(target.amqp())
            wire.log_in()
            wire.send(consume(1, b"unread", b"c"))
        _never.wait(0.5)
        with target.connect() as connection:
            queue = connection.admin.get_queue("unread")
            assert queue.ready_count + queue.unacked_count == 2_000, "messages are gone"
            return f"{queue.unacked_count} of 2000 messages are on their way"


def amqp_gets_whose_answers_nobody_reads(target: Target) -> str:
    one = method(1, GET, b"\0\0" + short(b"unread") + b"\0")
    with target.amqp() as wire:
        wire.log_in()
        sent = wire.send_some(one * 100_000, 1)
        return f"took {sent >> 10} of {len(one) * 100_000 >> 10} KiB"


def amqp_returns_and_confirms_that_nobody_reads(target: Target) -> str:
    one = publish(1, b"nowhere at all", flags=1) + content(1, 1) + frame(BODY, 1, b"m")
    with target.amqp() as wire:
        wire.log_in()
        wire.send(method(1, CONFIRM_SELECT, b"\0"))
        sent = wire.send_some(one * 500_000, 1)
        return f"took {sent >> 10} of {len(one) * 500_000 >> 10} KiB"


def amqp_heartbeats_by_the_million(target: Target) -> str:
    flood = frame(HEARTBEAT, 0, b"") * 1_000_000
    with target.amqp() as wire:
        wire.log_in()
        sent = wire.send_some(flood, 1)
        return f"took {sent >> 10} of {len(flood) >> 10} KiB"


def amqp_messages_recovered_again_and_again(target: Target) -> str:
    """Take a hundred messages, and have them delivered again as often as the broker does it; read nothing."""
    with target.amqp() as wire:
        wire.log_in()
        wire.send(method(1, (60, 10), b"\0\0\0\0\0\x64\0"))
        wire.send(consume(1, b"unread", b"c"))
        wire.expect((60, 11))
        wire.expect((60, 21))
        wire.expect(DELIVER)
        flood = method(1, RECOVER, b"\1") * 10_000
        sent = wire.send_some(flood, 1)
        return f"took {sent >> 10} of {len(flood) >> 10} KiB"


def amqp_acks_of_what_was_never_delivered(target: Target) -> str:
    with target.amqp() as wire:
        wire.log_in()
        wire.send_some(method(1, ACK, b"\xff" * 8 + b"\0") * 10_000, 1)
        return expect(wire.answer(), "406 PRECONDITION_FAILED - unknown delivery tag")


CASES = [
    Case(ten_thousand_amqp_connections_that_do_not_log_in),
    Case(a_byte_of_the_amqp_header_now_and_then),
    Case(a_byte_of_an_amqp_log_in_now_and_then),
    Case(an_amqp_client_that_misses_its_heartbeats),
    Case(more_amqp_channels_than_were_agreed),
    Case(amqp_channels_opened_and_closed_without_a_pause),
    Case(two_thousand_amqp_channels_that_each_hold_half_a_message),
    Case(a_flood_of_amqp_declarations_without_answers),
    Case(a_flood_of_amqp_consumers),
    Case(an_amqp_consumer_that_never_reads, prepare=twenty_megabytes_in_an_amqp_queue),
    Case(amqp_gets_whose_answers_nobody_reads),
    Case(amqp_returns_and_confirms_that_nobody_reads),
    Case(amqp_heartbeats_by_the_million),
    Case(amqp_messages_recovered_again_and_again),
    Case(amqp_acks_of_what_was_never_delivered),
]
