"""Limits of a virtual host as a value: the numbers of queues and connections, and the rates of publishing.

None is no limit.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.model import limits
from penstock.model.errors import Thing
from penstock.model.limits import write_limits


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a vhost; rates are per second."""

    queues_max: int | None = None
    connections_max: int | None = None
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None

    def written(self) -> dict[str, int]:
        """Return the limits in other brokers' format."""
        return write_limits(asdict(self))


NO_LIMITS: Final = Limits()
_FIELDS: Final = tuple(asdict(NO_LIMITS))


def read_limits(vhost: str, fields: Mapping[str, object]) -> Limits:
    """Parse limits; raise InvalidArgumentError for unsupported ones."""
    return Limits(**limits.read_limits(Thing("limits of vhost", vhost), fields, _FIELDS))


def check_limits(vhost: str, wanted: Limits) -> None:
    """Check limits; raise InvalidArgumentError."""
    limits.check_limits(Thing("limits of vhost", vhost), asdict(wanted))
