"""AMQP clients whose bytes are wrong: frames, order, contents, tables, and conversations of noise."""

import random
import struct
from collections.abc import Callable, Iterable

from hostile.amqp_wire import (
    BODY,
    CHANNEL_CLOSE_OK,
    CONFIRM_SELECT,
    DELIVER,
    EXCHANGE_DECLARE,
    HEADER,
    HEARTBEAT,
    METHOD,
    OPEN,
    QUEUE_DECLARE,
    START,
    content,
    declare_queue,
    frame,
    long,
    method,
    publish,
    short,
)
from hostile.target import MESSAGE_BYTES_MAX, Case, Target, expect

SEED = 17
DEEP = 10_000


def _answer(target: Target, *sent: bytes) -> str:
    """Log in and send; return how the broker ends it."""
    with target.amqp() as wire:
        wire.log_in()
        for each in sent:
            if not wire.send(each):
                break
        return wire.answer()


def another_protocol_than_amqp(target: Target) -> str:
    """Begin as browsers, TLS clients and clients of AMQP 1.0 do."""
    for begun in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"AMQP\0\1\0\0", b"AMQP\3\1\0\0"):
        with target.amqp(greets=False) as wire:
            wire.send(begun)
            heard = wire.socket.recv(len(HEADER))
            assert heard == HEADER, heard
            assert wire.is_hung_up()
    return "told the header of AMQP 0-9-1, then hung up"


def half_an_amqp_frame(target: Target) -> str:
    for cut in (1, 6, 7, 11, 20):
        with target.amqp() as wire:
            wire.log_in(heartbeat=1)
            wire.send(declare_queue(1, b"half")[:cut])
            assert wire.is_hung_up(), "the rest of a frame is still awaited"
    with target.amqp() as wire:
        wire.log_in()
        wire.send(declare_queue(1, b"half")[:12])
    return "hung up after two heartbeats"


def an_amqp_frame_beyond_what_was_agreed(target: Target) -> str:
    with target.amqp() as wire:
        wire.log_in(frame_max=4_096)
        wire.send(struct.pack(">BHI", METHOD, 1, 4_097))
        found = expect(wire.answer(), "501 FRAME_ERROR")
    for size in (131_073, 1 << 30, (1 << 32) - 1):
        expect(_answer(target, struct.pack(">BHI", BODY, 1, size)), "501 FRAME_ERROR")
    with target.amqp() as wire:  # before the log-in
        wire.expect(START)
        wire.send(struct.pack(">BHI", METHOD, 0, 1 << 31))
        expect(wire.answer(), "501 FRAME_ERROR", "hung up")
    return found


def an_amqp_frame_without_its_end(target: Target) -> str:
    return expect(_answer(target, frame(METHOD, 1, b"\0\x32\0\x0a", end=b"\0")), "501 FRAME_ERROR")


def amqp_frames_on_the_wrong_channel(target: Target) -> str:
    found = expect(_answer(target, declare_queue(7, b"q")), "504 CHANNEL_ERROR")
    expect(_answer(target, declare_queue(0, b"q")), "503 COMMAND_INVALID", "504 CHANNEL_ERROR")
    expect(_answer(target, method(1, OPEN, short(b"/") + b"\0\0")), "503 COMMAND_INVALID")
    expect(_answer(target, frame(HEARTBEAT, 1, b"")), "501 FRAME_ERROR", "503 COMMAND_INVALID", "505 UNEXPECTED_FRAME")
    expect(_answer(target, content(0, 1)), "505 UNEXPECTED_FRAME")
    expect(_answer(target, frame(4, 1, b"")), "501 FRAME_ERROR")
    return found


def amqp_content_without_a_publish(target: Target) -> str:
    found = expect(_answer(target, content(1, 3)), "505 UNEXPECTED_FRAME")
    expect(_answer(target, frame(BODY, 1, b"abc")), "505 UNEXPECTED_FRAME")
    expect(_answer(target, publish(1, b"q"), frame(BODY, 1, b"abc")), "505 UNEXPECTED_FRAME")
    expect(_answer(target, publish(1, b"q"), publish(1, b"q")), "505 UNEXPECTED_FRAME")
    expect(_answer(target, publish(1, b"q"), content(1, 3), content(1, 3)), "505 UNEXPECTED_FRAME")
    return found


def an_amqp_body_larger_than_announced(target: Target) -> str:
    found = expect(
        _answer(target, publish(1, b"q"), content(1, 3), frame(BODY, 1, b"four")), "501 FRAME_ERROR", "505 UNEXPECTED"
    )
    expect(_answer(target, publish(1, b"q"), content(1, 0), frame(BODY, 1, b"more")), "505 UNEXPECTED_FRAME")
    return found


def an_amqp_message_larger_than_any_may_be(target: Target) -> str:
    answers = {
        expect(_answer(target, publish(1, b"q"), content(1, size)), "406 PRECONDITION_FAILED", "501 FRAME_ERROR")
        for size in (MESSAGE_BYTES_MAX + 1, 1 << 40, (1 << 64) - 1)
    }
    return max(answers)


def _nested(open_one: Callable[[bytes], bytes], inner: bytes, depth: int = DEEP) -> bytes:
    for _ in range(depth):
        inner = open_one(inner)
    return inner


def amqp_tables_ten_thousand_deep(target: Target) -> str:
    """Nest tables in tables, and arrays in arrays, as deep as a frame has room."""
    tables = long(short(b"a") + _nested(lambda inner: b"F" + long(short(b"a") + inner), b"V"))
    arrays = long(short(b"a") + _nested(lambda inner: b"A" + long(inner), b"V"))
    answers = {
        expect(_answer(target, declare_queue(1, b"deep", table)), "501", "502 SYNTAX_ERROR")
        for table in (tables, arrays)
    }
    with target.amqp() as wire:  # before the log-in
        wire.expect(START)
        wire.send(wire.start_ok(tables))
        expect(wire.answer(), "501", "502 SYNTAX_ERROR", "hung up")
    return max(answers)


def amqp_tables_that_lie_about_their_size(target: Target) -> str:
    lies = (
        struct.pack(">I", 0xFFFFFFFF),
        struct.pack(">I", 100) + short(b"a") + b"t\1",
        long(short(b"a") + b"S" + struct.pack(">I", 0x7FFFFFFF) + b"x"),
        long(short(b"a") + b"F" + struct.pack(">I", 0xFFFFFFF0) + b"x"),
        long(short(b"a") + b"A" + struct.pack(">I", 5) + b"t\1"),
        long(short(b"a") + b"x" + struct.pack(">I", 1 << 31)),
        long(b"\xffa"),
        long(short(b"a") + b"?"),
        long(short(b"a")),
    )
    answers = {expect(_answer(target, declare_queue(1, b"lies", lie)), "501", "502 SYNTAX_ERROR") for lie in lies}
    for lie in lies:
        with target.amqp() as wire:  # before the log-in
            wire.expect(START)
            wire.send(wire.start_ok(lie))
            expect(wire.answer(), "501", "502 SYNTAX_ERROR", "hung up")
    return max(answers)


def an_amqp_table_of_as_many_entries_as_a_frame_takes(target: Target) -> str:
    table = long(b"".join(short(b"%x" % number) + b"V" for number in range(20_000)))
    with target.amqp() as wire:
        wire.log_in()
        for number in range(50):
            wire.send(declare_queue(1, b"wide-%d" % number, table, flags=4))
        return expect(wire.answer(2), "406 PRECONDITION_FAILED", "no answer")


def amqp_methods_that_do_not_exist(target: Target) -> str:
    found = expect(_answer(target, method(1, (60, 9_999))), "540 NOT_IMPLEMENTED", "503 COMMAND_INVALID")
    expect(_answer(target, frame(METHOD, 1, b"\0")), "501", "502 SYNTAX_ERROR")
    expect(_answer(target, method(1, DELIVER, short(b"t") + b"\0" * 9 + short(b"") * 2)), "503 COMMAND_INVALID")
    expect(_answer(target, method(1, CHANNEL_CLOSE_OK)), "503 COMMAND_INVALID", "504 CHANNEL_ERROR", "505")
    expect(_answer(target, method(1, QUEUE_DECLARE, b"\0\0" + b"\xffq")), "501", "502 SYNTAX_ERROR")
    expect(_answer(target, method(1, EXCHANGE_DECLARE, b"\0\0" + short(b"\xff\xfe") + short(b"direct"))), "501", "502")
    return found


def amqp_log_ins_out_of_order(target: Target) -> str:
    early = (method(0, OPEN, short(b"/") + b"\0\0"), declare_queue(1, b"q"), method(1, (20, 10), b"\0"), content(1, 1))
    for each in early:
        with target.amqp() as wire:
            wire.expect(START)
            wire.send(each)
            expect(wire.answer(), "503", "504", "505", "hung up")
    with target.amqp() as wire:
        wire.log_in()
        wire.send(wire.start_ok())
        return expect(wire.answer(), "503 COMMAND_INVALID", "504 CHANNEL_ERROR")


def _noise(chance: random.Random) -> Iterable[bytes]:
    """Yield what begins as frames do and goes on at random, and frames with some bits changed."""
    good = [
        declare_queue(1, b"n"),
        publish(1, b"n") + content(1, 2) + frame(BODY, 1, b"ab"),
        method(1, CONFIRM_SELECT, b"\0"),
    ]
    for _ in range(100):
        yield frame(chance.choice((1, 2, 3, 8)), chance.choice((0, 1, 2)), chance.randbytes(chance.randrange(64)))
        changed = bytearray(chance.choice(good))
        for _ in range(chance.randrange(1, 4)):
            changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        yield bytes(changed)


def amqp_frames_of_noise(target: Target) -> str:
    answers: dict[str, int] = {}
    for each in _noise(random.Random(SEED)):
        with target.amqp() as wire:
            wire.log_in()
            wire.send(each)
            code = wire.answer(0.05)[:3]
            answers[code] = answers.get(code, 0) + 1
    return ", ".join(f"{code}: {count}" for code, count in sorted(answers.items()))


CASES = [
    Case(another_protocol_than_amqp),
    Case(half_an_amqp_frame),
    Case(an_amqp_frame_beyond_what_was_agreed),
    Case(an_amqp_frame_without_its_end),
    Case(amqp_frames_on_the_wrong_channel),
    Case(amqp_content_without_a_publish),
    Case(an_amqp_body_larger_than_announced),
    Case(an_amqp_message_larger_than_any_may_be),
    Case(amqp_tables_ten_thousand_deep),
    Case(amqp_tables_that_lie_about_their_size),
    Case(an_amqp_table_of_as_many_entries_as_a_frame_takes),
    Case(amqp_methods_that_do_not_exist),
    Case(amqp_log_ins_out_of_order),
    Case(amqp_frames_of_noise),
]
