"""Principals and their allowances, however they were authenticated.

They are users of this broker, or were authenticated by a token or another server. The permissions of the latter are
asked of their allowances, which need not know all of them beforehand.
"""

from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.identity.users import Tag
from penstock.model.records import Access


class Allowance(Protocol):
    """Permissions of one principal in one vhost."""

    def allows(self, access: Access, name: str, kind: str = "") -> bool:
        """Return whether access is allowed; `kind` is `queue` or `exchange`.

        Raises UndecidedError to ask a server first.
        """
        ...

    def narrows_keys(self, exchange: str) -> bool:
        """Return whether some routing keys of a writable topic exchange may be refused."""
        ...

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        """Return whether a routing key of a topic exchange may be written, or read by a binding.

        It says nothing about the exchange itself. Raises UndecidedError as `allows` does.
        """
        ...


class Identity(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> tuple[Tag, ...]: ...
    @property
    def is_administrator(self) -> bool: ...
    @property
    def expires_at_ms(self) -> int | None:
        """Return when the authentication expires; None for never."""
        ...

    def sees_vhost(self, vhost: str) -> bool:
        """Return whether the vhost is visible to this principal."""
        ...

    def allowance(self, vhost: str) -> Allowance | None:
        """Return the allowance; None when access to the vhost is refused. Raises UndecidedError as allowances do."""
        ...


class UndecidedError(Exception):
    """Another server has to be asked before this can be decided.

    Nothing has been changed: after `ask` the whole can be retried, and will get further.
    """

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        super().__init__("an HTTP back end must be asked first")
        self.ask = ask
