"""Ages in RabbitMQ's format: a number and one of the units Y, M, D, h, m, s.

A month has 30 days and a year 365, as ages compare times and know no calendar.
"""

import re
from typing import Final

MILLISECONDS: Final = {
    "Y": 365 * 86_400_000,
    "M": 30 * 86_400_000,
    "D": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1_000,
}
AGE_MS_MAX: Final = 2**62
"""More than a hundred million years, and far from what 64 bits hold."""
_AGE: Final = re.compile(r"([0-9]{1,18})([YMDhms])")


def age_ms(text: str) -> int | None:
    """Return the milliseconds of an age; None when the text is no age, zero, or too large."""
    found = _AGE.fullmatch(text)
    if found is None:
        return None
    age = int(found[1]) * MILLISECONDS[found[2]]
    return age if 0 < age <= AGE_MS_MAX else None
