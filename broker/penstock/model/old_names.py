"""Names that meant today's things before 0.1.0, as data directories and exports of that time have them.

They are read there alone. Clients that send one are refused, as for every unknown name: passing it over would change
what a confirm promises.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.model.records import X_DURABILITY

T = TypeVar("T")
OF_ARGUMENTS: Final = {"x-level": X_DURABILITY}
OF_POLICIES: Final = {"level": "durability"}


def with_todays_names(found: Mapping[str, T], names: Mapping[str, str]) -> dict[str, T]:
    """Return the same with old names replaced, unless today's name is there too, which no version wrote."""
    return {name if names.get(name, name) in found else names.get(name, name): value for name, value in found.items()}
