"""Connections that waste resources: silent, slow, with too many streams, or without reads."""

import socket
import struct
import time
import urllib.request
from contextlib import ExitStack
from threading import Event

from hostile.target import CONSUME, FIRST_REQUEST_SECONDS, KNOWN, PUBLISH, STRANGER, Case, Target, expect
from hostile.wire import (
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Wire,
    frame,
    message,
)
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import messaging_pb2 as messaging

STATUS = "/penstock.v1.AdminService/GetStatus"
SILENT_COUNT = 10_000
SECONDS_MAX = 60
_never = Event()


def ten_thousand_connections_that_say_nothing(target: Target) -> str:
    with ExitStack() as sockets:
        silent = [
            sockets.enter_context(socket.create_connection(("127.0.0.1", target.port), timeout=SECONDS_MAX))
            for _ in range(SILENT_COUNT)
        ]
        with target.connect() as connection:
            connection.admin.list_queues()
        began = time.monotonic()
        for each in silent:
            assert _is_closed(each), "a silent connection is still open"
        took = time.monotonic() - began + FIRST_REQUEST_SECONDS
        return f"all closed {took:.0f} s at most after they came; others were served"


def _is_closed(each: socket.socket) -> bool:
    """Read the broker's bytes first, until it closes."""
    try:
        while each.recv(4_096):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


def connections_that_say_nothing_to_metrics(target: Target) -> str:
    """Open more than the limit: excess ones are closed at once, the others after ten seconds."""
    with ExitStack() as sockets:
        silent = [
            sockets.enter_context(socket.create_connection(("127.0.0.1", target.metrics_port), timeout=SECONDS_MAX))
            for _ in range(600)
        ]
        assert all(_is_closed(each) for each in silent), "a silent connection is still open"
    probe = f"http://127.0.0.1:{target.metrics_port}/health/ready"
    with urllib.request.urlopen(probe, timeout=SECONDS_MAX) as response:
        return f"all closed; the next probe is answered with {response.status}"


def a_byte_of_the_preface_now_and_then(target: Target) -> str:
    with Wire(target.port, greets=False) as wire:
        wire.socket.settimeout(0.2)
        return _drip(wire.socket, PREFACE * 100)


def a_byte_of_a_handshake_now_and_then(target: Target) -> str:
    with socket.create_connection(("127.0.0.1", target.tls_port), timeout=0.2) as each:
        return _drip(each, b"\x16\x03\x01\x02\x00" + b"\x01" * 500)


def _drip(each: socket.socket, data: bytes) -> str:
    began = time.monotonic()
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


def a_stream_that_is_opened_and_says_nothing(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        return expect(wire.answer(wire.open(PUBLISH)), "DEADLINE_EXCEEDED", "hung up")


def more_streams_than_a_connection_may_have(target: Target) -> str:
    """Log in first: a slow client is hung up on. Announce large messages: silent streams end before the last one."""
    announced = message(b"", MESSAGE_SIZE)
    with target.wire(KNOWN) as wire:
        expect(wire.answer(wire.request(STATUS, message(b""))), "OK")
        for _ in range(1_100):
            last = wire.request(PUBLISH, announced, flags=0)
        return expect(wire.answer(last), "RST_STREAM REFUSED_STREAM", "GOAWAY")


def a_hundred_thousand_pings_whose_answers_nobody_reads(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        sent = wire.send_some(frame(PING, 0, 0, b"12345678") * 100_000, 1)
        return f"took {sent >> 10} KiB, then read no more"


def a_hundred_thousand_settings_whose_answers_nobody_reads(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        sent = wire.send_some(frame(SETTINGS, 0, 0, struct.pack(">HI", 3, 7)) * 100_000, 1)
        return f"took {sent >> 10} KiB, then read no more"


def streams_opened_and_reset_at_once(target: Target) -> str:
    """CVE-2023-44487."""
    answers: set[str] = set()
    for _ in range(10):
        with target.wire(KNOWN) as wire:
            block = wire.block(STATUS)
            flood = b"".join(
                frame(HEADERS, END_HEADERS, stream, block) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                for stream in range(1, 20_001, 2)
            )
            wire.send_some(flood, 1)
            answers.add(wire.answer(0, 5))
    return expect(max(answers), "GOAWAY ENHANCE_YOUR_CALM", "hung up")


def streams_that_the_broker_is_made_to_reset(target: Target) -> str:
    """MadeYouReset, CVE-2025-8671: a window that is opened too far is an error of its stream."""
    with target.wire(KNOWN) as wire:
        block = wire.block(PUBLISH)
        most = struct.pack(">I", (1 << 31) - 1)
        flood = b"".join(
            frame(HEADERS, END_HEADERS, stream, block) + frame(WINDOW_UPDATE, 0, stream, most)
            for stream in range(1, 4_001, 2)
        )
        wire.send_some(flood, 1)
        return expect(wire.answer(0, 5), "GOAWAY ENHANCE_YOUR_CALM", "hung up")


def calls_that_nobody_waits_for(target: Target) -> str:
    """Send whole requests and cancel each: the broker need not decide them."""
    request = message(admin.ListQueuesRequest().SerializeToString())
    with target.wire(KNOWN) as wire:
        block = wire.block("/penstock.v1.AdminService/ListQueues")
        cancel = struct.pack(">I", 8)
        flood = b"".join(
            frame(HEADERS, END_HEADERS, stream, block)
            + frame(DATA, END_STREAM, stream, request)
            + frame(RST_STREAM, 0, stream, cancel)
            for stream in range(1, 20_001, 2)
        )
        wire.send_some(flood, 1)
        ended = wire.answer(0, 1)
    with target.connect() as connection:
        connection.admin.list_queues()
    return f"{ended}; others are answered"


def twenty_megabytes_in_a_queue(target: Target) -> None:
    with target.connect() as connection:
        connection.declare_queue("slow")
        connection.publish_many([b"x" * 10_000] * 2_000, routing_key="slow")


def a_consumer_that_never_opens_its_window(target: Target) -> str:
    return _read_slowly(target, window=0, opens=0)


def a_consumer_that_reads_a_byte_now_and_then(target: Target) -> str:
    return _read_slowly(target, window=0, opens=1)


def _read_slowly(target: Target, window: int, opens: int) -> str:
    with target.wire(KNOWN, window=window) as wire:
        opening = messaging.ConsumeRequest(open=messaging.ConsumeOpen(queue="slow", auto_ack=True))
        opened = [wire.request(CONSUME, message(opening.SerializeToString()), flags=0) for _ in range(50)]
        for _ in range(20 if opens else 1):
            for stream in opened if opens else ():
                wire.send(frame(WINDOW_UPDATE, 0, stream, struct.pack(">I", opens)))
            _never.wait(0.05)
        read = sum(len(found.payload) for found in wire.frames(0.2) if found.kind == DATA)
    with target.connect() as connection:
        kept = connection.admin.get_queue("slow").ready_count
    return f"sent {read} bytes, kept {kept} messages in the queue"


def a_million_messages_whose_confirms_nobody_reads(target: Target) -> str:
    opening = messaging.PublishRequest(open=messaging.PublishOpen()).SerializeToString()
    batch = messaging.PublishRequest()
    batch.batch.routing_key = "nowhere at all"
    for _ in range(1_000):
        batch.batch.messages.add(body=b"m")
    batch.batch.mandatory = True  # each is returned: the most expensive answer
    with target.wire(KNOWN, window=0) as wire:
        stream = wire.open(PUBLISH)
        data = message(opening) + message(batch.SerializeToString()) * 1_000
        frames = [frame(DATA, 0, stream, data[at : at + (1 << 14)]) for at in range(0, len(data), 1 << 14)]
        sent = sum(wire.send_some(each, 1) for each in frames[:200])
        ended = [found for found in wire.frames(0.5) if found.kind in (GOAWAY, RST_STREAM)]
    return f"read {sent >> 10} KiB of {len(data) >> 10}, then waited{' and ended it' if ended else ''}"


def strangers_with_streams_that_hold_large_messages(target: Target) -> str:
    """No message is buffered before its sender is authenticated."""
    half = message(b"\0" * (1 << 20), MESSAGE_SIZE)
    answers: set[str] = set()
    with target.wire(STRANGER) as wire:
        streams = [wire.request(PUBLISH, half, flags=0) for _ in range(8)]
        answers.update(wire.answer(stream) for stream in streams[-1:])
    return expect(max(answers), "UNAUTHENTICATED", "hung up", "RST_STREAM")


MESSAGE_SIZE = 15 << 20


def a_thousand_streams_that_send_a_part_of_a_large_message(target: Target) -> str:
    """Send 400 KB of 15 MB on each stream while the connection's window is open; the window is that of the broker."""
    opening = message(messaging.PublishRequest(open=messaging.PublishOpen()).SerializeToString())
    part = frame(DATA, 0, 0, b"\0" * (1 << 14))
    with target.wire(KNOWN) as wire:
        streams = [wire.request(PUBLISH, opening + message(b"", MESSAGE_SIZE), flags=0) for _ in range(990)]
        sent, space = 0, wire.window
        for _ in range(24):
            for stream in streams:
                while space < 1 << 14:
                    opened = wire.opened(1.0)
                    if not opened:
                        return f"took {sent >> 20} MiB, then opened no window"
                    space += opened
                wire.send(part[:5] + struct.pack(">I", stream) + part[9:])
                sent, space = sent + (1 << 14), space - (1 << 14)
    raise AssertionError(f"all {sent >> 20} MiB were taken")


def ten_thousand_strangers_that_fill_their_windows(target: Target) -> str:
    half = message(b"\0" * (12 << 10), MESSAGE_SIZE)
    flood = frame(DATA, 0, 1, b"\0" * (1 << 14)) * 64
    with ExitStack() as wires:
        sent = 0
        for number in range(STRANGERS):
            wire = wires.enter_context(target.wire(STRANGER))
            wire.request(PUBLISH, half, flags=0)
            if number % 100 == 0:
                sent += wire.send_some(flood, 0.05)
        with target.connect() as connection:
            connection.admin.list_queues()
        return f"took {sent // (STRANGERS // 100) >> 10} KiB of those that sent 1,024; others were served"


STRANGERS = 10_000

CASES = [
    Case(ten_thousand_connections_that_say_nothing),
    Case(connections_that_say_nothing_to_metrics),
    Case(a_byte_of_the_preface_now_and_then),
    Case(a_byte_of_a_handshake_now_and_then),
    Case(a_stream_that_is_opened_and_says_nothing),
    Case(more_streams_than_a_connection_may_have),
    Case(a_hundred_thousand_pings_whose_answers_nobody_reads),
    Case(a_hundred_thousand_settings_whose_answers_nobody_reads),
    Case(streams_opened_and_reset_at_once),
    Case(streams_that_the_broker_is_made_to_reset),
    Case(calls_that_nobody_waits_for),
    Case(a_consumer_that_never_opens_its_window, twenty_megabytes_in_a_queue),
    Case(a_consumer_that_reads_a_byte_now_and_then, twenty_megabytes_in_a_queue),
    Case(a_million_messages_whose_confirms_nobody_reads),
    Case(strangers_with_streams_that_hold_large_messages),
    Case(a_thousand_streams_that_send_a_part_of_a_large_message),
    Case(ten_thousand_strangers_that_fill_their_windows),
]
