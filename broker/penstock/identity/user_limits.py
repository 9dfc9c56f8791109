"""Limits of users, also of those authenticated by tokens, by their names."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.model.errors import Thing
from penstock.model.limits import check_limits, read_limits, write_limits


@dataclass(frozen=True, slots=True)
class UserLimits:
    """Limits of a user; `streams_max` counts open publish and consume streams, rates are per second."""

    connections_max: int | None = None
    streams_max: int | None = None
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None

    def written(self) -> dict[str, int]:
        """Return the limits in other brokers' format."""
        return write_limits(asdict(self))


NO_USER_LIMITS: Final = UserLimits()
_FIELDS: Final = tuple(asdict(NO_USER_LIMITS))


def check_user_limits(user: str, limits: UserLimits) -> None:
    """Check limits; raise InvalidArgumentError."""
    check_limits(_thing(user), asdict(limits))


def read_user_limits(user: str, written: Mapping[str, object]) -> UserLimits:
    """Parse limits; raise InvalidArgumentError for unsupported ones."""
    return UserLimits(**read_limits(_thing(user), written, _FIELDS))


def _thing(user: str) -> Thing:
    return Thing("limits of user", user)
