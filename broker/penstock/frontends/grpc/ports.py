"""The native listener as this front end sees it: what it asks, and how it is answered. `Server` and `Call` of the
native module are these; tests bring their own."""

from collections.abc import Sequence
from typing import Protocol

from penstock import services


class Asked(Protocol):
    """The part of a call that decisions look at."""

    @property
    def kind(self) -> str: ...
    @property
    def vhost(self) -> str: ...
    @property
    def subject(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def again(self) -> bool:
        """Whether it is about a stream that is open already, and goes on if it is admitted."""
        ...


class Call(Asked, Protocol):
    """Something to decide; whoever asked waits for one of the three answers."""

    @property
    def method(self) -> str: ...
    @property
    def authorization(self) -> str: ...
    @property
    def certificate(self) -> bytes: ...
    @property
    def peer(self) -> str: ...
    @property
    def connection(self) -> int: ...

    def answer(self, payload: bytes, /) -> None: ...
    def admit(self, vhost: str, queue_id: int, user: str, by_key: bool, /) -> None: ...
    def refuse(self, code: int, message: str, details: bytes, /) -> None: ...


class Listener(services.Listener, Protocol):
    """Makes `wake_fd` readable while calls wait."""

    @property
    def wake_fd(self) -> int: ...
    def take(self) -> Sequence[Call]: ...
