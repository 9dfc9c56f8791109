"""Reads `definitions.amqp` of a LavinMQ vhost: the exchanges, queues and bindings that exist after all frames.

The frames are those of the wire, but for their integers, which are little-endian outside of field tables. The time
grows linearly with the file, even when much was deleted.
"""

from dataclasses import dataclass, field
from typing import Final, TypeAlias

from penstock.importing.lavinmq.files import Folder
from penstock.importing.lavinmq.place import U16, U32, Bytes, FileBytes, corrupt
from penstock.model.arguments import Arguments, freeze_arguments

VERSION: Final = 1
FRAME_END: Final = 0xCE
FILE_BYTES_MAX: Final = 256 * 1024 * 1024
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
End: TypeAlias = tuple[bool, str]
"""One end of a binding: whether it is an exchange, and its name."""
_FRAME_HEAD_BYTES: Final = 7
_METHOD_FRAME: Final = 1
_DURABLE, _EXCHANGE_AUTO_DELETE, _INTERNAL, _EXCLUSIVE, _QUEUE_AUTO_DELETE = 2, 4, 8, 4, 8


@dataclass(frozen=True, slots=True)
class FoundExchange:
    """An exchange; `kind` is text, because not every kind exists in this broker."""

    name: str
    kind: str
    durable: bool
    auto_delete: bool
    internal: bool
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class FoundQueue:
    name: str
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Arguments


@dataclass(frozen=True, slots=True)
class FoundBinding:
    source: str
    destination: str
    to_exchange: bool
    routing_key: str
    arguments: Arguments

    @property
    def identity(self) -> tuple[object, ...]:
        return (self.source, self.to_exchange, self.destination, self.routing_key, freeze_arguments(self.arguments))

    @property
    def ends(self) -> tuple[End, End]:
        return (True, self.source), (self.to_exchange, self.destination)


@dataclass(slots=True)
class FoundTopology:
    """A vhost's topology. Invariant: `_by_end` has each binding at both of its ends and nothing else."""

    exchanges: dict[str, FoundExchange] = field(default_factory=dict)
    queues: dict[str, FoundQueue] = field(default_factory=dict)
    bindings: dict[tuple[object, ...], FoundBinding] = field(default_factory=dict)
    _by_end: dict[End, set[tuple[object, ...]]] = field(default_factory=dict)

    def bind(self, binding: FoundBinding) -> None:
        identity = binding.identity
        self.bindings[identity] = binding
        for end in binding.ends:
            self._by_end.setdefault(end, set()).add(identity)

    def unbind(self, identity: tuple[object, ...]) -> None:
        binding = self.bindings.pop(identity, None)
        for end in set(binding.ends) if binding else ():
            at_end = self._by_end[end]
            at_end.remove(identity)
            if not at_end:
                del self._by_end[end]

    def forget(self, name: str, *, is_exchange: bool) -> None:
        """Forget an exchange or queue, and the bindings at either of its ends."""
        (self.exchanges if is_exchange else self.queues).pop(name, None)
        for identity in tuple(self._by_end.get((is_exchange, name), ())):
            self.unbind(identity)


def read_topology(folder: Folder) -> FoundTopology:
    """Read a vhost's definitions. A vhost without the file has no topology. Raises StorageError that names the byte."""
    found = FoundTopology()
    try:
        with folder.file("definitions.amqp", FILE_BYTES_MAX) as file:
            _read_frames(FileBytes(file), found)
    except FileNotFoundError:
        pass
    return found


def _read_frames(place: FileBytes, found: FoundTopology) -> None:
    if place.at == place.end:
        return
    version = place.number(U32, "the version")
    if version != VERSION:
        raise corrupt(place.path, 0, f"the version is {version}, not {VERSION}")
    while place.at < place.end:
        if place.is_zero_ahead() and place.next_not_zero() is None:
            break  # the file was extended beyond the bytes written
        _read_frame(_next_frame(place), found)


def _next_frame(place: FileBytes) -> Bytes:
    """Return what is in the frame."""
    start = place.at
    kind, _, size = place.octet("a frame"), place.number(U16, "a frame"), place.number(U32, "a frame")
    if kind != _METHOD_FRAME or size > min(FRAME_BYTES_MAX, place.end - place.at - 1):
        raise corrupt(place.path, start, "there is no complete method frame here")
    at = place.at
    content = place.take(size + 1, "a frame")
    if content[size] != FRAME_END:
        raise corrupt(place.path, start, "there is no complete method frame here")
    return Bytes(place.path, content[:size], at)


def _read_frame(place: Bytes, found: FoundTopology) -> None:
    start = place.at - _FRAME_HEAD_BYTES
    method = (place.number(U16, "a class"), place.number(U16, "a method"))
    place.number(U16, "a reserved field")
    at = place.at
    match method:
        case (40, 10):
            _declare_exchange(place, found)
        case (50, 10):
            _declare_queue(place, found)
        case (40, 20) | (50, 40):
            found.forget(place.name("a name"), is_exchange=method[0] == 40)
            place.octet("bits")
        case (40, 30) | (40, 40) | (50, 20) | (50, 50):
            _change_binding(place, found, method)
        case _:
            raise corrupt(place.path, start, f"method {method[0]},{method[1]} is not a declaration")
    if place.at != place.end:
        raise corrupt(place.path, at, f"the frame has {place.end - place.at} extra bytes")


def _declare_exchange(place: Bytes, found: FoundTopology) -> None:
    name, kind, bits = place.name("an exchange's name"), place.name("its type"), place.octet("its bits")
    found.exchanges[name] = FoundExchange(
        name,
        kind,
        durable=bool(bits & _DURABLE),
        auto_delete=bool(bits & _EXCHANGE_AUTO_DELETE),
        internal=bool(bits & _INTERNAL),
        arguments=place.table("an exchange's arguments"),
    )


def _declare_queue(place: Bytes, found: FoundTopology) -> None:
    name, bits = place.name("a queue's name"), place.octet("its bits")
    found.queues[name] = FoundQueue(
        name,
        durable=bool(bits & _DURABLE),
        exclusive=bool(bits & _EXCLUSIVE),
        auto_delete=bool(bits & _QUEUE_AUTO_DELETE),
        arguments=place.table("a queue's arguments"),
    )


def _change_binding(place: Bytes, found: FoundTopology, method: tuple[int, int]) -> None:
    destination, source, key = place.name("a destination"), place.name("a source"), place.name("a routing key")
    if method != (50, 50):
        place.octet("bits")  # only queue.unbind has none
    binding = FoundBinding(source, destination, method[0] == 40, key, place.table("a binding's arguments"))
    if method in ((40, 30), (50, 20)):
        found.bind(binding)
    else:
        found.unbind(binding.identity)
