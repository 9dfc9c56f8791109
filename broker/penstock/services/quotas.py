"""Tells the listener what users and virtual hosts may use: all that differs from what it was told last."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Protocol

from penstock.model.limits import FLOW
from penstock.services.ports import LimitsOfUsers
from penstock.vhost.vhost import Vhost

_Quota = dict[str, int]


class QuotaListener(Protocol):
    """The part of the native listener that is told."""

    def set_quota(self, name: str, is_user: bool, limits: dict[str, int]) -> None: ...


class Quotas:
    """The limits of one listener."""

    def __init__(self, listener: QuotaListener, vhosts: Callable[[], Iterable[Vhost]], users: LimitsOfUsers) -> None:
        self._listener = listener
        self._vhosts = vhosts
        self._users = users
        self._told: dict[tuple[bool, str], _Quota] = {}

    def apply(self) -> None:
        wanted: dict[tuple[bool, str], _Quota]
        wanted = {(False, str(vhost.name)): _quota(asdict(vhost.limits)) for vhost in self._vhosts()}
        wanted |= {(True, user): _quota(asdict(limits)) for user, limits in self._users.all().items()}
        wanted = {holder: quota for holder, quota in wanted.items() if quota}
        for is_user, name in [*self._told, *wanted]:
            quota = wanted.get((is_user, name), {})
            if quota != self._told.get((is_user, name), {}):
                self._listener.set_quota(name, is_user, quota)
        self._told = wanted


def _quota(limits: dict[str, int | None]) -> _Quota:
    return {field: value for field in (*FLOW, "streams_max") if (value := limits.get(field)) is not None}
