"""Bindings in order, for listing them page by page without looking at all of them.

The order stays while bindings come and go: by source, destination and routing key.
"""

from collections.abc import Iterator
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple

from sortedcontainers import SortedDict

from penstock.model.arguments import freeze_arguments
from penstock.model.names import ExchangeName
from penstock.model.records import Binding


class BindingPlace(NamedTuple):
    """The place of a binding in the order. Arguments stand in it as a digest, because they may be long."""

    source: str
    destination: str
    kind: str
    routing_key: str
    arguments: str = ""


def place_of(binding: Binding) -> BindingPlace:
    arguments = ""
    if binding.arguments:
        arguments = blake2b(repr(freeze_arguments(binding.arguments)).encode(errors="surrogatepass")).hexdigest()[:32]
    kind = binding.destination_kind.value
    return BindingPlace(binding.source, binding.destination, kind, binding.routing_key, arguments)


class BindingIndex:
    """All bindings of a vhost by their places."""

    __slots__ = ("_bindings",)

    def __init__(self) -> None:
        self._bindings = SortedDict()

    def __iter__(self) -> Iterator[Binding]:
        return iter(self._bindings.values())

    def add(self, binding: Binding) -> None:
        self._bindings[place_of(binding)] = binding

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is in the index."""
        del self._bindings[place_of(binding)]

    def page(self, source: ExchangeName | None, after: BindingPlace | None, limit: int) -> list[Binding]:
        """Return the first `limit` bindings after a place, which need not exist; of one source, if it is named."""
        begin = after
        if source is not None:
            # It comes before every binding of the source, because none has an empty kind.
            first = BindingPlace(source, "", "", "")
            begin = first if after is None else max(after, first)
        places = islice(self._bindings.irange(begin, None, inclusive=(False, True)), limit)
        return [self._bindings[place] for place in places if source in (None, place.source)]
