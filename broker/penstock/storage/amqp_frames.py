"""Declarations as AMQP 0-9-1 method frames, exactly as a client would send them.

A frame has type, channel, size, class, method, arguments and end octet, all big-endian. This module knows how a change
is written and read, not what it changes. A queue's id, and its shard unless that is 0, are further arguments of its
declaration, and no client ever sees them.
"""

import struct
from collections.abc import Callable
from dataclasses import dataclass

from penstock.model.arguments import Arguments, Value
from penstock.model.field_table import FieldTableError, decode_table, encode_table
from penstock.model.names import QUEUE_ID_MAX, ExchangeName, QueueId, QueueName, RoutingKey
from penstock.model.old_names import OF_ARGUMENTS, with_todays_names
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, Queue

FRAME_BYTES_MAX = 4 * 1024 * 1024  # arguments are bounded to 64 KiB of text: ten times what a frame can need
QUEUE_ID_ARGUMENT = "x-penstock-id"
SHARD_ARGUMENT = "x-penstock-shard"
SHARD_MAX = 0xFFFF
METHOD_FRAME, FRAME_END = 1, 0xCE
FRAME_HEADER = struct.Struct(">BHI")
_METHOD = struct.Struct(">HH")
_LONG = struct.Struct(">I")
_RESERVED = b"\0\0"
_ID_HEAD = bytes((len(QUEUE_ID_ARGUMENT),)) + QUEUE_ID_ARGUMENT.encode() + b"I"
_ONLY_AN_ID = struct.Struct(f">{len(_ID_HEAD)}si")

_EXCHANGE_DECLARE, _EXCHANGE_DELETE, _EXCHANGE_BIND, _EXCHANGE_UNBIND = (40, 10), (40, 20), (40, 30), (40, 40)
_QUEUE_DECLARE, _QUEUE_BIND, _QUEUE_DELETE, _QUEUE_UNBIND = (50, 10), (50, 20), (50, 40), (50, 50)
_DURABLE, _EXCHANGE_AUTO_DELETE, _INTERNAL, _EXCLUSIVE, _QUEUE_AUTO_DELETE = 2, 4, 8, 4, 8


@dataclass(frozen=True, slots=True)
class Declared:
    thing: Exchange | Queue


@dataclass(frozen=True, slots=True)
class ExchangeDeleted:
    name: ExchangeName


@dataclass(frozen=True, slots=True)
class QueueDeleted:
    name: QueueName


@dataclass(frozen=True, slots=True)
class Bound:
    binding: Binding


@dataclass(frozen=True, slots=True)
class Unbound:
    binding: Binding


Change = Declared | ExchangeDeleted | QueueDeleted | Bound | Unbound


class FrameError(ValueError):
    """Bytes that are no frame of ours. `offset` counts from the frame's first byte."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


def encode(change: Change) -> bytes:
    """Return the change as one frame."""
    if isinstance(change, Declared):
        thing = change.thing
        return _declared_exchange(thing) if isinstance(thing, Exchange) else _declared_queue(thing)
    if isinstance(change, ExchangeDeleted):
        return _frame(_EXCHANGE_DELETE, _short(change.name) + b"\0")
    if isinstance(change, QueueDeleted):
        return _frame(_QUEUE_DELETE, _short(change.name) + b"\0")
    return _bound(change.binding, is_bind=isinstance(change, Bound))


def _frame(method: tuple[int, int], arguments: bytes) -> bytes:
    size = _METHOD.size + len(_RESERVED) + len(arguments)
    assert size <= FRAME_BYTES_MAX
    return b"".join(
        (FRAME_HEADER.pack(METHOD_FRAME, 0, size), _METHOD.pack(*method), _RESERVED, arguments, bytes((FRAME_END,)))
    )


def _declared_exchange(exchange: Exchange) -> bytes:
    bits = _DURABLE * exchange.durable + _EXCHANGE_AUTO_DELETE * exchange.auto_delete + _INTERNAL * exchange.internal
    content = _short(exchange.name) + _short(exchange.kind.value) + bytes((bits,)) + _table(exchange.arguments)
    return _frame(_EXCHANGE_DECLARE, content)


def _declared_queue(queue: Queue) -> bytes:
    bits = _DURABLE * queue.durable + _EXCLUSIVE * queue.exclusive + _QUEUE_AUTO_DELETE * queue.auto_delete
    shard = {SHARD_ARGUMENT: queue.shard} if queue.shard else {}
    arguments = {**queue.arguments, **shard, QUEUE_ID_ARGUMENT: int(queue.id)}
    return _frame(_QUEUE_DECLARE, _short(queue.name) + bytes((bits,)) + _table(arguments))


def _bound(binding: Binding, *, is_bind: bool) -> bytes:
    key, table = _short(binding.routing_key), _table(binding.arguments)
    ends = _short(binding.destination) + _short(binding.source)
    if binding.destination_kind is DestinationKind.EXCHANGE:
        return _frame(_EXCHANGE_BIND if is_bind else _EXCHANGE_UNBIND, ends + key + b"\0" + table)
    if is_bind:
        return _frame(_QUEUE_BIND, ends + key + b"\0" + table)
    return _frame(_QUEUE_UNBIND, ends + key + table)  # only queue.unbind has no no-wait bit


def _short(text: str) -> bytes:
    content = text.encode()
    return bytes((len(content),)) + content


def _table(arguments: Arguments) -> bytes:
    content = encode_table(arguments)
    return _LONG.pack(len(content)) + content


def frame_size(content: bytes, offset: int) -> int | None:
    """Return the size of the frame that begins here, or None when its end is past the content.

    Raises FrameError for a head that no frame of ours has; a head that is cut off is checked by the bytes that exist.
    """
    head = content[offset : offset + FRAME_HEADER.size]
    if not (b"\x01\0\0").startswith(head[:3]):
        raise FrameError("there is no method frame of channel 0 here", 0)
    if len(head) < FRAME_HEADER.size:
        return None
    size: int = FRAME_HEADER.unpack(head)[2]
    if not _METHOD.size + len(_RESERVED) <= size <= FRAME_BYTES_MAX:
        raise FrameError(f"the frame's size {size} is not between 6 and {FRAME_BYTES_MAX}", 3)
    whole = FRAME_HEADER.size + size + 1
    return whole if offset + whole <= len(content) else None


def decode(frame: bytes) -> Change:
    """Return the change in a whole frame. Raises FrameError."""
    if frame[-1] != FRAME_END:
        raise FrameError(f"the frame's end is {frame[-1]:#04x}, not {FRAME_END:#04x}", len(frame) - 1)
    method = _METHOD.unpack_from(frame, FRAME_HEADER.size)
    read = _READERS.get(method)
    if read is None:
        raise FrameError(f"method {method[0]},{method[1]} is not a declaration", FRAME_HEADER.size)
    reader = _Reader(frame, FRAME_HEADER.size + _METHOD.size + len(_RESERVED), len(frame) - 1)
    try:
        change = read(reader)
    except (FieldTableError, UnicodeDecodeError, ValueError) as error:
        raise FrameError(str(error), reader.offset) from error
    if reader.offset != reader.end:
        raise FrameError(f"{reader.end - reader.offset} extra bytes follow", reader.offset)
    return change


class _Reader:
    """Reader of the arguments of one frame; `offset` is its position."""

    def __init__(self, frame: bytes, offset: int, end: int) -> None:
        self._frame = frame
        self.offset = offset
        self.end = end

    def short(self) -> str:
        return self._take(self.octet()).decode()

    def octet(self) -> int:
        return self._take(1)[0]

    def table(self) -> dict[str, Value]:
        content = self._take(int(_LONG.unpack(self._take(4))[0]))
        if len(content) == _ONLY_AN_ID.size and content.startswith(_ID_HEAD):
            # Almost every queue has exactly this argument; a start reads it a hundred thousand times.
            return {QUEUE_ID_ARGUMENT: _ONLY_AN_ID.unpack(content)[1]}
        return decode_table(content)

    def _take(self, count: int) -> bytes:
        start, stop = self.offset, self.offset + count
        if stop > self.end:
            raise ValueError(f"{count} bytes are needed, {self.end - start} are there")
        self.offset = stop
        return self._frame[start:stop]


def _read_exchange(reader: _Reader) -> Change:
    name, kind, bits = reader.short(), reader.short(), reader.octet()
    exchange = Exchange(
        ExchangeName(name),
        ExchangeKind(kind),
        durable=bool(bits & _DURABLE),
        auto_delete=bool(bits & _EXCHANGE_AUTO_DELETE),
        internal=bool(bits & _INTERNAL),
        arguments=reader.table(),
    )
    return Declared(exchange)


def _read_queue(reader: _Reader) -> Change:
    name, bits, arguments = reader.short(), reader.octet(), reader.table()
    arguments = with_todays_names(arguments, OF_ARGUMENTS)
    queue_id = arguments.pop(QUEUE_ID_ARGUMENT, None)
    if not isinstance(queue_id, int) or isinstance(queue_id, bool) or not 0 < queue_id <= QUEUE_ID_MAX:
        raise ValueError(f"the queue {name!r} has no usable {QUEUE_ID_ARGUMENT}: {queue_id!r}")
    shard = arguments.pop(SHARD_ARGUMENT, 0)
    if not isinstance(shard, int) or isinstance(shard, bool) or not 0 <= shard <= SHARD_MAX:
        raise ValueError(f"the queue {name!r} has no usable {SHARD_ARGUMENT}: {shard!r}")
    queue = Queue(
        QueueId(queue_id),
        QueueName(name),
        durable=bool(bits & _DURABLE),
        auto_delete=bool(bits & _QUEUE_AUTO_DELETE),
        arguments=arguments,
        shard=shard,
    )
    return Declared(queue)


def _read_binding(reader: _Reader, kind: DestinationKind, *, has_no_wait: bool) -> Binding:
    destination, source, key = reader.short(), reader.short(), reader.short()
    if has_no_wait:
        reader.octet()
    name = QueueName(destination) if kind is DestinationKind.QUEUE else ExchangeName(destination)
    return Binding(ExchangeName(source), kind, name, RoutingKey(key), reader.table())


def _read_exchange_deleted(reader: _Reader) -> Change:
    name = reader.short()
    reader.octet()
    return ExchangeDeleted(ExchangeName(name))


def _read_queue_deleted(reader: _Reader) -> Change:
    name = reader.short()
    reader.octet()
    return QueueDeleted(QueueName(name))


_READERS: dict[tuple[int, ...], Callable[[_Reader], Change]] = {
    _EXCHANGE_DECLARE: _read_exchange,
    _EXCHANGE_DELETE: _read_exchange_deleted,
    _EXCHANGE_BIND: lambda reader: Bound(_read_binding(reader, DestinationKind.EXCHANGE, has_no_wait=True)),
    _EXCHANGE_UNBIND: lambda reader: Unbound(_read_binding(reader, DestinationKind.EXCHANGE, has_no_wait=True)),
    _QUEUE_DECLARE: _read_queue,
    _QUEUE_BIND: lambda reader: Bound(_read_binding(reader, DestinationKind.QUEUE, has_no_wait=True)),
    _QUEUE_UNBIND: lambda reader: Unbound(_read_binding(reader, DestinationKind.QUEUE, has_no_wait=False)),
    _QUEUE_DELETE: _read_queue_deleted,
}
