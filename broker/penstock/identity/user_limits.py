"""Limits of users, whoever vouches for them: those of tokens have limits by their names too."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Final

from penstock.model.errors import Thing
from penstock.model.limits import check_limits, read_limits, write_limits


@dataclass(frozen=True, slots=True)
class UserLimits:
    """`streams_max` counts open streams that publish or consume; rates are a second's."""

    connections_max: int | None = None
    streams_max: int | None = None
    publish_rate: int | None = None
    publish_bytes_rate: int | None = None
    in_flight_bytes_max: int | None = None
    message_bytes_max: int | None = None

    def written(self) -> dict[str, int]:
        """As other brokers write them."""
        return write_limits(asdict(self))


NO_USER_LIMITS: Final = UserLimits()
_FIELDS: Final = tuple(asdict(NO_USER_LIMITS))


def check_user_limits(user: str, limits: UserLimits) -> None:
    """Raises InvalidArgumentError."""
    check_limits(_thing(user), asdict(limits))


def read_user_limits(user: str, written: Mapping[str, object]) -> UserLimits:
    """Raises InvalidArgumentError for what cannot be honoured."""
    return UserLimits(**read_limits(_thing(user), written, _FIELDS))


def _thing(user: str) -> Thing:
    return Thing("limits of user", user)
