"""Exchanges that choose one binding for each message: by the hash of what they hash, or at random.

The results must never change, because consumers count on messages of one content in one queue. Content and names are
hashed by 64 bits of FNV-1a; bindings are in the order of their weights and their destinations' names. Nothing here is
random: of a random exchange, which may choose any binding, it is the first.
"""

from collections.abc import Sequence
from math import log
from typing import Final

from penstock.model.arguments import Arguments, Timestamp
from penstock.model.names import RoutingKey
from penstock.model.records import Binding, DestinationKind, Exchange, ExchangeKind, HashAlgorithm

KINDS: Final = frozenset(
    {ExchangeKind.CONSISTENT_HASH, ExchangeKind.MODULUS_HASH, ExchangeKind.RANDOM, ExchangeKind.LOCAL_RANDOM}
)
_MASK: Final = 2**64 - 1
_FNV_BASIS: Final = 0xCBF2_9CE4_8422_2325
_FNV_PRIME: Final = 0x0000_0100_0000_01B3


def content(exchange: Exchange, key: RoutingKey, headers: Arguments) -> bytes:
    """Return what the exchange hashes of a message without properties: a header or the routing key."""
    if exchange.hash_property is not None:
        return b""
    if exchange.hash_header is None:
        return key.encode()
    value = headers.get(exchange.hash_header)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, (int, Timestamp)):
        return str(value.seconds if isinstance(value, Timestamp) else value).encode()
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else b""


def choose(exchange: Exchange, bindings: Sequence[Binding], hashed: bytes) -> list[Binding]:
    """Return one of the bindings, or none if there is none."""
    is_weighted = exchange.routing_kind is ExchangeKind.CONSISTENT_HASH
    places = sorted({_place(binding, is_weighted): binding for binding in bindings}.items())
    if not places:
        return []
    if exchange.routing_kind is ExchangeKind.MODULUS_HASH:
        return [places[hash64(hashed) % len(places)][1]]
    if not is_weighted:
        return [places[0][1]]
    weights = [place[0] for place, _ in places]
    names = [place[1] for place, _ in places]
    by = jump if exchange.algorithm is HashAlgorithm.JUMP else ring
    return [places[by(hash64(hashed), weights, names)][1]]


def _place(binding: Binding, is_weighted: bool) -> tuple[int, bytes, bool]:
    weight = int(binding.routing_key) if is_weighted else 1
    return weight, binding.destination.encode(), binding.destination_kind is DestinationKind.EXCHANGE


def ring(hashed: int, weights: Sequence[int], names: Sequence[bytes]) -> int:
    """Return the index with the highest score, by weighted rendezvous hashing."""
    scores = []
    for weight, name in zip(weights, names, strict=True):
        unit = ((mix(hashed ^ hash64(name)) >> 12) + 0.5) / 2**52
        scores.append(-weight / log(unit))
    return scores.index(max(scores))


def jump(hashed: int, weights: Sequence[int], names: Sequence[bytes]) -> int:
    """Return an index by jump consistent hashing over as many places as the weights add up to."""
    assert len(weights) == len(names)
    place, following, total = 0, 0, sum(weights)
    while following < total:
        place = following
        hashed = (hashed * 2_862_933_555_777_941_757 + 1) & _MASK
        following = int((place + 1) * (2**31 / ((hashed >> 33) + 1)))
    for index, weight in enumerate(weights):
        place -= weight
        if place < 0:
            return index
    raise AssertionError("a place is below the sum of the weights")


def hash64(text: bytes) -> int:
    digest = _FNV_BASIS
    for byte in text:
        digest = ((digest ^ byte) * _FNV_PRIME) & _MASK
    return mix(digest)


def mix(number: int) -> int:
    """Return the number after the last steps of SplitMix64."""
    number = ((number ^ (number >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return number ^ (number >> 31)
