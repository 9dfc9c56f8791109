"""Whoever comes in, from wherever they are known: users of this broker, and visitors whom a token or another server
vouches for. What a visitor may do is asked of its allowances, which need not know all of it beforehand."""

from collections.abc import Awaitable, Callable
from typing import Protocol

from penstock.identity.users import Tag
from penstock.model.records import Access


class Allowance(Protocol):
    """What one person may do in one vhost."""

    def allows(self, access: Access, name: str, kind: str = "") -> bool:
        """`kind` is `queue` or `exchange`. Raises UndecidedError when it has to be asked for first."""
        ...

    def narrows_keys(self, exchange: str) -> bool:
        """Whether a topic exchange that may be written may be closed for some routing keys."""
        ...

    def allows_key(self, access: Access, exchange: str, key: str) -> bool:
        """Of a topic exchange: writing a message of that routing key, or reading by a binding of it. It says nothing of
        the exchange itself. Raises UndecidedError as `allows` does."""
        ...


class Person(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def tags(self) -> tuple[Tag, ...]: ...
    @property
    def is_administrator(self) -> bool: ...
    @property
    def expires_at_ms(self) -> int | None:
        """When whoever vouches for the person ceases to; None for never."""
        ...

    def sees_vhost(self, vhost: str) -> bool:
        """Whether the vhost is named to this person at all."""
        ...

    def allowance(self, vhost: str) -> Allowance | None:
        """None when the vhost is closed. Raises UndecidedError as allowances do."""
        ...


class UndecidedError(Exception):
    """Another server has to be asked before this can be decided. Nothing has been changed: after `ask` the whole may be
    tried again, and will get further."""

    def __init__(self, ask: Callable[[], Awaitable[None]]) -> None:
        super().__init__("another server has to be asked first")
        self.ask = ask
