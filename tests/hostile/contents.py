"""Frames, headers and messages that are false, too large, too deep, or no text: each is refused by a sentence."""

import base64
import json
import struct
from contextlib import ExitStack

import pyarrow
import pytest

import penstock
from hostile.target import KNOWN, MESSAGE_BYTES_MAX, PUBLISH, STRANGER, Case, Target, expect
from hostile.wire import CONTINUATION, DATA, END_HEADERS, HEADERS, Wire, frame, message
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import messaging_pb2 as messaging

GET_STATUS = "/penstock.v1.AdminService/GetStatus"
FLIGHT = "/arrow.flight.protocol.FlightService/"
REFLECTION = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
DEPTH = 1_000


def frames_that_are_cut_off(target: Target) -> str:
    for data in (frame(DATA, 0, 1, b"x", length=16_000), frame(HEADERS, END_HEADERS, 1, b"\x82", length=100), b"\0"):
        with target.wire(KNOWN) as wire:
            wire.send(data)
    return "gone with their connections"


def frames_larger_than_was_agreed(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        stream = wire.open(PUBLISH)
        wire.send(frame(DATA, 0, stream, b"", length=(1 << 24) - 1))
        wire.send_some(b"\0" * (1 << 20), 1)
        return expect(wire.answer(stream), "GOAWAY FRAME_SIZE_ERROR", "hung up", "RST_STREAM")


def frames_of_noise(target: Target) -> str:
    answers = set()
    for seed in range(50):
        noise = bytes((seed * 73 + at * at * 31 + at // 7) & 0xFF for at in range(3_000))
        with target.wire(KNOWN) as wire:
            wire.send(noise)
            answers.add(wire.answer(1, 5).split()[0])
    return expect(" ".join(sorted(answers)), "GOAWAY", "RST_STREAM", "hung")


def a_message_of_one_gigabyte_announced(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        stream = wire.request(PUBLISH, message(b"x", 1 << 30), flags=0)
        return expect(wire.answer(stream), "OUT_OF_RANGE", "RESOURCE_EXHAUSTED")


def a_message_of_one_gigabyte_sent_in_pieces(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        stream = wire.open(PUBLISH)
        pieces = [message(b"", 1 << 30), *[b"\0" * (1 << 14)] * 1_000]
        sent = sum(wire.send_some(frame(DATA, 0, stream, each), 1) for each in pieces)
        found = wire.answer(stream)
        return (
            expect(found, "OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "RST_STREAM", "hung up") + f" ({sent >> 20} MiB sent)"
        )


def bodies_just_above_what_a_message_may_have(target: Target) -> str:
    with target.connect() as connection, pytest.raises(penstock.PenstockError, match="message_bytes_max") as refused:
        connection.publish(b"\0" * (MESSAGE_BYTES_MAX + 1), routing_key="q")
    return str(refused.value)[:100]


def lengths_that_lie_about_their_message(target: Target) -> str:
    answers = []
    for data in (
        message(b"abc", 10),
        message(b"abc", 0),
        message(b"abc", 3, flag=1),
        message(b"abc", 3, flag=9),
        b"\0\0",
    ):
        with target.wire(KNOWN) as wire:
            answers.append(wire.answer(wire.request("/penstock.v1.AdminService/ListQueues", data)))
    kinds = sorted({each.split(":")[0] for each in answers})
    return expect(", ".join(kinds), "INTERNAL", "INVALID_ARGUMENT", "UNIMPLEMENTED", "UNKNOWN")


def headers_a_thousand_tables_deep(target: Target) -> str:
    """Nest by hand: libraries refuse to."""
    value = b""
    for _ in range(DEPTH):
        entry = _field(1, b"k") + _field(2, value)
        value = _field(7, _field(1, entry))
    properties = _field(3, _field(1, b"h") + _field(2, value))
    return _publish(target, _field(2, b"q") + _field(4, _field(1, b"b") + _field(4, properties)))


def names_that_are_no_text(target: Target) -> str:
    published = _publish(target, _field(1, b"\xff\xfe") + _field(4, _field(1, b"b")))
    declared = target.ask("DeclareQueue", _field(2, _field(1, b"\xff\xc0\xaf")))
    expect(declared, "INVALID_ARGUMENT")
    vhost = target.ask("CreateVhost", _field(1, b"\xed\xa0\x80"))
    expect(vhost, "INVALID_ARGUMENT")
    credentials = "Basic " + base64.b64encode(b"\xff\xfe:\x80").decode()
    return expect(target.ask("GetStatus", b"", credentials), "UNAUTHENTICATED") and expect(
        published, "INVALID_ARGUMENT"
    )


def _publish(target: Target, batch: bytes) -> str:
    opening = messaging.PublishRequest(open=messaging.PublishOpen()).SerializeToString()
    with target.wire(KNOWN) as wire:
        stream = wire.request(PUBLISH, message(opening) + message(_field(2, batch)))
        return expect(wire.answer(stream), "INVALID_ARGUMENT")


def _field(number: int, payload: bytes) -> bytes:
    """Return a length-delimited field of Protocol Buffers."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def a_header_that_never_ends(target: Target) -> str:
    """CONTINUATION frames, CVE-2024-24549 and its like."""
    with target.wire(KNOWN) as wire:
        stream = wire.open_with(b"\x00\x01a\x01b", flags=0)
        flood = frame(CONTINUATION, 0, stream, b"\x00\x01a\x01b" * 1_000) * 2_000
        wire.send_some(flood, 1)
        return expect(wire.answer(stream), "GOAWAY", "hung up")


def a_token_of_one_megabyte(target: Target) -> str:
    with target.wire() as wire:
        token = b"Bearer " + b"e" * (1 << 20)
        block = wire.block(GET_STATUS) + b"\x10\x0dauthorization" + _hpack_length(len(token)) + token
        stream = wire.open_with(block[: 1 << 14], flags=0)
        for at in range(1 << 14, len(block), 1 << 14):
            is_last = at + (1 << 14) >= len(block)
            wire.send(frame(CONTINUATION, END_HEADERS if is_last else 0, stream, block[at : at + (1 << 14)]))
        return expect(wire.answer(stream), "GOAWAY", "HTTP 431", "RST_STREAM", "hung up")


def a_small_header_block_that_unpacks_to_much(target: Target) -> str:
    """Put one large header into the table, then name it again and again."""
    with target.wire(KNOWN) as wire:
        block = b"\x40\x01a" + _hpack_length(4_000) + b"b" * 4_000
        wire.open_with(wire.block(PUBLISH) + block)
        bomb = wire.block(PUBLISH) + b"\xbe" * 15_000
        return expect(wire.answer(wire.open_with(bomb)), "GOAWAY", "HTTP 431", "RST_STREAM", "hung up")


def _hpack_length(length: int) -> bytes:
    return b"\x7f" + _varint(length - 127)


def patterns_that_explode(target: Target) -> str:
    """Try patterns that a backtracking engine never finishes: they are matched with a bad name, or refused."""
    queue, user = admin.Queue(name="a" * 254 + "!"), admin.PutUserRequest(name="patterned", password="x")
    expect(target.ask("DeclareQueue", admin.DeclareQueueRequest(queue=queue).SerializeToString()), "OK")
    expect(target.ask("PutUser", user.SerializeToString()), "OK")
    for pattern in ("(a+)+$", "(a|a)*(a|a)*(a|a)*(a|a)*b", "a?" * 100 + "a" * 100, "[ab]*[ab]*[ab]*[ab]*[ab]*c"):
        for answer in _answers_to_pattern(target, pattern):
            expect(answer, "OK")
    refused = ("(?=(a+)+$)", r"(a|a)*\1", "(?:(?:[a-z.]{0,16}){16}){16}!", "(" * 5_000)
    answers = [answer for pattern in refused for answer in _answers_to_pattern(target, pattern)]
    target.ask("DeletePolicy", admin.DeletePolicyRequest(name="p").SerializeToString())
    target.ask("DeleteQueue", admin.DeleteQueueRequest(name=queue.name).SerializeToString())
    target.ask("DeleteUser", admin.DeleteUserRequest(name="patterned").SerializeToString())
    return max((expect(answer, "INVALID_ARGUMENT") for answer in answers), key=len)[:100]


def _answers_to_pattern(target: Target, pattern: str) -> list[str]:
    """Try it as a permission and as a policy."""
    permission = admin.Permission(user="patterned", vhost="/", configure=pattern, write=".*", read=".*")
    policy = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern=pattern))
    policy.policy.definition["durability"].string_value = "disk"
    return [
        target.ask("SetPermission", admin.SetPermissionRequest(permission=permission).SerializeToString()),
        target.ask("SetPolicy", policy.SerializeToString()),
    ]


def definitions_a_hundred_thousand_deep(target: Target) -> str:
    deep = b'{"queues":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    answers = [deep, b'{"users":[{"name":' + b'{"a":' * 100_000, b"[" * 3_000_000, b'{"a":' + b"9" * 100_000 + b"}"]
    found = [
        target.ask("ImportDefinitions", admin.ImportDefinitionsRequest(json=each).SerializeToString())
        for each in answers
    ]
    return max(expect(each, "INVALID_ARGUMENT") for each in found)[:100]


def definitions_of_two_hundred_megabytes(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        stream = wire.open("/penstock.v1.AdminService/ImportDefinitions")
        wire.send_some(frame(DATA, 0, stream, message(b" " * 1_000, 200 << 20)), 1)
        return expect(wire.answer(stream), "OUT_OF_RANGE", "RESOURCE_EXHAUSTED")


def definitions_of_many_small_things(target: Target) -> str:
    """Send a request of the maximum size with only invalid content, as fast as the broker accepts it."""
    queues = [{"name": f"q{number}", "vhost": "nowhere", "arguments": {}} for number in range(150_000)]
    with target.connect() as connection, pytest.raises(penstock.InvalidArgumentError) as refused:
        connection.admin.import_definitions(json.dumps({"queues": queues}))
    return f"INVALID_ARGUMENT: {refused.value}"[:100]


def large_requests_of_strangers(target: Target) -> str:
    """Send more than the windows allow."""
    with target.wire(STRANGER) as wire:
        stream = wire.request("/penstock.v1.AdminService/ImportDefinitions", message(b"\0" * (3 << 20)))
        return expect(wire.answer(stream), "UNAUTHENTICATED", "hung up", "RST_STREAM")


def large_questions_to_reflection(target: Target) -> str:
    with target.wire() as wire:
        stream = wire.request(REFLECTION, message(b"\0" * 100, 4 << 20), flags=0)
        return expect(wire.answer(stream), "OUT_OF_RANGE", "RESOURCE_EXHAUSTED", "OK")


def a_ticket_of_ten_megabytes(target: Target) -> str:
    with target.wire(KNOWN) as wire:
        ticket = _field(1, b'{"partition": "' + b"a" * (10 << 20) + b'"}')
        return expect(
            wire.answer(wire.request(FLIGHT + "DoGet", message(ticket))), "OUT_OF_RANGE", "RESOURCE_EXHAUSTED"
        )


def tickets_that_are_deep_or_no_text(target: Target) -> str:
    answers = set()
    for ticket in (
        b"[" * 60_000,
        b'{"partition":' + b'{"a":' * 10_000,
        b'{"partition": "\xff"}',
        b"",
        b'{"partition": "a", "from": 1e999}',
    ):
        with target.wire(KNOWN) as wire:
            answers.add(wire.answer(wire.request(FLIGHT + "DoGet", message(_field(1, ticket)))))
    return min(expect(each, "INVALID_ARGUMENT") for each in answers)[:100]


def record_batches_that_lie(target: Target) -> str:
    """Send a valid schema and batch first, then the same truncated, changed, or with false lengths."""
    batch = pyarrow.record_batch({"body": pyarrow.array([b"x" * 10] * 100, pyarrow.binary())})
    schema, data = _flight_of(batch)
    with target.connect() as connection:
        connection.declare_queue("rows")
    command = _field(1, b"\x08\x02" + _field(2, b'{"routing_key": "rows"}'))
    bad: list[tuple[bytes, bytes]] = [(data[0][:cut], data[1]) for cut in (0, 5, 40)]
    bad += [(data[0], data[1][: len(data[1]) // 2]), (data[0], b"")]
    for at in range(0, len(data[0]), 3):
        bad.append((data[0][:at] + b"\xff\xff\xff\x7f" + data[0][at + 4 :], data[1]))
    kinds: dict[str, int] = {}
    for header, body in bad:
        with target.wire(KNOWN) as wire:
            first = command + _field(2, schema)
            rows = _field(2, header) + bytes([0xC2, 0x3E]) + _varint(len(body)) + body  # field 1,000
            answer = wire.answer(wire.request(FLIGHT + "DoPut", message(first) + message(rows)))
            kind = expect(answer, "INVALID_ARGUMENT", "OK", "RESOURCE_EXHAUSTED").split(":")[0]
            kinds[kind] = kinds.get(kind, 0) + 1
    with target.connect() as connection:
        connection.delete_queue("rows")
    assert kinds.get("INVALID_ARGUMENT", 0) > len(bad) // 3, kinds
    return ", ".join(f"{count} {kind}" for kind, count in kinds.items())


def _flight_of(batch: pyarrow.RecordBatch) -> tuple[bytes, tuple[bytes, bytes]]:
    """Return the header of the schema's message, and header and body of the batch's, each header behind eight bytes."""
    schema, rows = batch.schema.serialize().to_pybytes(), batch.serialize().to_pybytes()
    schema_size, rows_size = (struct.unpack("<I", each[4:8])[0] for each in (schema, rows))
    return schema[8 : 8 + schema_size], (rows[8 : 8 + rows_size], rows[8 + rows_size :])


def passwords_tried_by_the_hundred(target: Target) -> str:
    """Passwords are checked one after another: a busy machine may not check the last ones in the time for a log-in."""
    answers: dict[str, int] = {}
    with ExitStack() as wires:
        asked: list[tuple[Wire, int]] = []
        for attempt in range(4):
            wire = target.wire("Basic " + base64.b64encode(f"guest:{attempt}".encode()).decode())
            wires.enter_context(wire)
            asked.append((wire, [wire.request(GET_STATUS, message(b"")) for _ in range(50)][-1]))
        for wire, stream in asked:
            kind = expect(wire.answer(stream), "UNAUTHENTICATED", "UNAVAILABLE", "hung up").split(":")[0]
            answers[kind] = answers.get(kind, 0) + 1
    return ", ".join(sorted(answers))


CASES = [
    Case(frames_that_are_cut_off),
    Case(frames_larger_than_was_agreed),
    Case(frames_of_noise),
    Case(a_message_of_one_gigabyte_announced),
    Case(a_message_of_one_gigabyte_sent_in_pieces),
    Case(bodies_just_above_what_a_message_may_have),
    Case(lengths_that_lie_about_their_message),
    Case(headers_a_thousand_tables_deep),
    Case(names_that_are_no_text),
    Case(a_header_that_never_ends),
    Case(a_token_of_one_megabyte),
    Case(a_small_header_block_that_unpacks_to_much),
    Case(patterns_that_explode),
    Case(definitions_a_hundred_thousand_deep),
    Case(definitions_of_two_hundred_megabytes),
    Case(definitions_of_many_small_things),
    Case(large_requests_of_strangers),
    Case(large_questions_to_reflection),
    Case(a_ticket_of_ten_megabytes),
    Case(tickets_that_are_deep_or_no_text),
    Case(record_batches_that_lie),
    Case(passwords_tried_by_the_hundred),
]
