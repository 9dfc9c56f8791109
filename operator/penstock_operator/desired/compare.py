"""Finds differences between the desired and the actual state.

Only desired fields are compared: defaults and additions by others stay. Quantities are compared as numbers, as the API
server rewrites them.
"""

import re
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?")
_UNITS = {
    "m": Decimal("0.001"),
    **{unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)},
    **{f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)},
}
_KEYS = ("name", "mountPath", "port", "type")


def differences(wanted: Any, found: Any, path: str = "") -> list[str]:
    """Return the paths of desired fields that differ."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            where
            for key, value in wanted.items()
            for where in differences(value, found.get(key), f"{path}.{key}" if path else key)
        ]
    if isinstance(wanted, list) and isinstance(found, list):
        return _in_lists(wanted, found, path)
    return [] if wanted == found or _is_empty(wanted, found) or _is_same_quantity(wanted, found) else [path]


def _in_lists(wanted: list[Any], found: list[Any], path: str) -> list[str]:
    key = _key_of(wanted)
    if key is not None:
        by_key = {each.get(key): each for each in found if isinstance(each, dict)}
        return [where for each in wanted for where in differences(each, by_key.get(each[key]), f"{path}[{each[key]}]")]
    if len(wanted) != len(found):
        return [path]
    return [
        where
        for index, (one, other) in enumerate(zip(wanted, found, strict=True))
        for where in differences(one, other, f"{path}[{index}]")
    ]


def _key_of(items: list[Any]) -> str | None:
    """Return the key that identifies the items, if there is one."""
    if not items or not all(isinstance(each, dict) for each in items):
        return None
    return next((key for key in _KEYS if all(key in each for each in items)), None)


def _is_empty(wanted: Any, found: Any) -> bool:
    """Return whether both are empty: the API server omits empty lists and maps."""
    return found is None and wanted in ([], {})


def _is_same_quantity(wanted: Any, found: Any) -> bool:
    one, other = quantity(wanted), quantity(found)
    return one is not None and one == other


def quantity(value: Any) -> Decimal | None:
    """Return the quantity; None when it is not one."""
    match = _QUANTITY.fullmatch(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    if match is None:
        return None
    return Decimal(match[1]) * _UNITS.get(match[2] or "", Decimal(1))
