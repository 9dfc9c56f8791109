"""Tells the listener what users and virtual hosts may use: what differs from what it was told last."""

from collections.abc import Callable, Mapping
from typing import Protocol

from penstock.model.names import VhostName
from penstock.services.ports import LimitsOfUsers
from penstock.vhost.vhost import Vhost

_Quota = dict[str, int]


class QuotaListener(Protocol):
    """The part of the native listener that is told."""

    def set_quota(self, name: str, is_user: bool, limits: dict[str, int]) -> None: ...


class Quotas:
    """The limits of one listener."""

    def __init__(
        self, listener: QuotaListener, vhosts: Callable[[], Mapping[VhostName, Vhost]], users: LimitsOfUsers
    ) -> None:
        self._listener = listener
        self._vhosts = vhosts
        self._users = users
        self._told: dict[tuple[bool, str], _Quota] = {}

    def apply(self, *, user: str | None = None, vhost: str | None = None) -> None:
        """Tell the limits of one user and of one virtual host; without a name, all of them."""
        if user is not None:
            self._tell(True, user)
        if vhost is not None:
            self._tell(False, vhost)
        if user is None and vhost is None:
            now = [(False, name) for name in self._vhosts()] + [(True, name) for name in self._users.all()]
            for is_user, name in dict.fromkeys([*self._told, *now]):
                self._tell(is_user, name)

    def _tell(self, is_user: bool, name: str) -> None:
        quota = self._now(is_user, name)
        if quota != self._told.get((is_user, name), {}):
            self._listener.set_quota(name, is_user, quota)
        if quota:
            self._told[is_user, name] = quota
        else:
            self._told.pop((is_user, name), None)

    def _now(self, is_user: bool, name: str) -> _Quota:
        if is_user:
            return self._users.find(name).flow()
        vhost = self._vhosts().get(VhostName(name))
        return {} if vhost is None else vhost.limits.flow()
