"""The native server as front ends and the services see it."""

from collections.abc import Sequence

from penstock.frontends.native.ports import Call
from penstock.native import OpenConsumer, Server, UsageLimits


class NativeListener:
    """Implements `frontends.native.ports.Listener`."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def wake_fd(self) -> int:
        return self._server.wake_fd

    def take(self) -> Sequence[Call]:
        return self._server.take()

    def forget(self, vhost: str | None) -> None:
        self._server.forget(vhost)

    def recheck(self, user: str | None, vhost: str | None) -> None:
        self._server.recheck(user, vhost)

    def recheck_connection(self, connection: int) -> None:
        self._server.recheck_connection(connection)

    def set_quota(self, name: str, is_user: bool, limits: dict[str, int]) -> None:
        self._server.set_limits(name, is_user, UsageLimits(**limits))

    def consumers(self) -> Sequence[OpenConsumer]:
        return self._server.consumers()

    def close_connection(self, connection: int, /) -> bool:
        return self._server.close_connection(connection)
