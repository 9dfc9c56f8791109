"""`definitions.amqp` of a LavinMQ vhost: what is left of exchanges, queues and bindings once all frames are read in
order. The frames are those of the wire, but for their integers, which are little-endian here."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from penstock.importing.lavinmq.place import U16, U32, Bytes, damaged
from penstock.model.arguments import Arguments, freeze_arguments

VERSION: Final = 1
FRAME_END: Final = 0xCE
_METHOD_FRAME: Final = 1
_DURABLE, _EXCHANGE_AUTO_DELETE, _INTERNAL, _EXCLUSIVE, _QUEUE_AUTO_DELETE = 2, 4, 8, 4, 8


@dataclass(frozen=True, slots=True)
class FoundExchange:
    """`kind` is text: not every kind there is one here."""

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


@dataclass(slots=True)
class FoundTopology:
    exchanges: dict[str, FoundExchange] = field(default_factory=dict)
    queues: dict[str, FoundQueue] = field(default_factory=dict)
    bindings: dict[tuple[object, ...], FoundBinding] = field(default_factory=dict)

    def forget(self, name: str, *, is_exchange: bool) -> None:
        """Bindings go with either of their ends."""
        (self.exchanges if is_exchange else self.queues).pop(name, None)
        self.bindings = {
            identity: binding
            for identity, binding in self.bindings.items()
            if not (binding.destination == name and binding.to_exchange == is_exchange)
            and not (is_exchange and binding.source == name)
        }


def read_topology(path: Path) -> FoundTopology:
    """A vhost without the file has no topology. Raises StorageError that names the byte."""
    found = FoundTopology()
    try:
        place = Bytes(path, path.read_bytes())
    except FileNotFoundError:
        return found
    if not place.content:
        return found
    version = place.number(U32, "the version")
    if version != VERSION:
        raise damaged(path, 0, f"the version is {version}, not {VERSION}")
    whole = place.end
    while place.at < whole:
        if not place.content[place.at :].strip(b"\0"):
            break  # the file was made longer than what was written into it
        _read_frame(place, found)
        place.end = whole
    return found


def _read_frame(place: Bytes, found: FoundTopology) -> None:
    start = place.at
    kind, _, size = place.octet("a frame"), place.number(U16, "a frame"), place.number(U32, "a frame")
    stop = place.at + size
    if kind != _METHOD_FRAME or stop >= place.end or place.content[stop] != FRAME_END:
        raise damaged(place.path, start, "no whole method frame begins here")
    place.end = stop
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
            raise damaged(place.path, start, f"method {method[0]},{method[1]} declares nothing")
    if place.at != stop:
        raise damaged(place.path, at, f"the frame has {stop - place.at} bytes too many")
    place.at = stop + 1


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
        place.octet("bits")  # queue.unbind alone has none
    binding = FoundBinding(source, destination, method[0] == 40, key, place.table("a binding's arguments"))
    if method in ((40, 30), (50, 20)):
        found.bindings[binding.identity] = binding
    else:
        found.bindings.pop(binding.identity, None)
