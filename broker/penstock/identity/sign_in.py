"""Authenticates a client with the back ends in order, until one accepts the credentials.

If one refuses or cannot be reached, the next is asked; if none accepts them, the first refusal is the answer. The
user `guest` may log in from loopback only, whichever back end or certificate knows that name.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from penstock.identity.identities import Identity
from penstock.identity.users import LOOPBACK_ONLY_USER
from penstock.kit.peers import NOWHERE, Source
from penstock.model.errors import FaultError, NotAuthenticatedError, Thing

NO_TOKENS = "send a user name and a password: this broker accepts no tokens"


class NotATokenError(NotAuthenticatedError):
    """The text is not a token, so that its refusal says nothing about a user name and a password."""


class Backend(Protocol):
    """An authentication back end. It raises NotAuthenticatedError, or a fault when it cannot decide."""

    async def log_in(self, name: str, password: str, *, source: Source) -> Identity: ...


class Tokens(Protocol):
    """Checks tokens without a user name, and raises as `Backend` does. Implemented by `identity.token_backend`."""

    async def log_in_by_token(self, token: str) -> Identity: ...

    def check_open(self, identity: Identity) -> None: ...

    def refresh_keys(self) -> None: ...

    def watch_keys(self, removed: Callable[[], None]) -> None: ...


class Certificates(Protocol):
    """Implemented by `identity.certificates`, which takes memory and is loaded only if configured."""

    def find(self, certificate: bytes) -> Identity: ...


class SignIn:
    """Implements `services.ports.SignIn`."""

    def __init__(
        self, backends: Sequence[Backend], certificates: Certificates | None = None, tokens: Tokens | None = None
    ) -> None:
        assert backends
        self._tokens = tokens
        self._backends = backends
        self._certificates = certificates

    async def log_in_by_certificate(self, certificate: bytes, *, is_loopback: bool) -> Identity:
        if self._certificates is None:
            raise NotAuthenticatedError("", "send credentials, or ask an administrator to set tls_client_user")
        return _admitted(self._certificates.find(certificate), is_loopback)

    async def log_in(self, name: str, password: str, *, is_loopback: bool, source: Source = NOWHERE) -> Identity:
        errors: list[NotAuthenticatedError | FaultError] = []
        for backend in self._backends:
            try:
                identity = await backend.log_in(name, password, source=source)
            except (NotAuthenticatedError, FaultError) as error:
                errors.append(error)
            else:
                return _admitted(identity, is_loopback)
        raise _what_counts(errors)

    async def log_in_by_token(self, token: str, *, is_loopback: bool) -> Identity:
        if self._tokens is None:
            raise NotAuthenticatedError("", NO_TOKENS)
        try:
            identity = await self._tokens.log_in_by_token(token)
        except FaultError as fault:
            raise _what_counts([fault]) from fault
        return _admitted(identity, is_loopback)

    def check_open(self, identity: Identity) -> None:
        if self._tokens is not None:
            self._tokens.check_open(identity)

    def refresh_keys(self) -> None:
        if self._tokens is not None:
            self._tokens.refresh_keys()

    def watch_keys(self, removed: Callable[[], None]) -> None:
        if self._tokens is not None:
            self._tokens.watch_keys(removed)


def _admitted(identity: Identity, is_loopback: bool) -> Identity:
    if identity.name == LOOPBACK_ONLY_USER and not is_loopback:
        raise NotAuthenticatedError(
            identity.name, "log in from this machine, or as another user: guest is for loopback only"
        )
    return identity


def _what_counts(errors: list[NotAuthenticatedError | FaultError]) -> NotAuthenticatedError | FaultError:
    """Return the error to report.

    A user whom an unreachable back end might know is not refused, nor told which server it is.
    """
    faults = [error for error in errors if isinstance(error, FaultError)]
    if faults:
        undecided = FaultError(
            Thing("log-in", "sign-in"), "cannot be authenticated now", "retry later; see the broker's log"
        )
        undecided.__cause__ = faults[0]
        return undecided
    refusals = [error for error in errors if isinstance(error, NotAuthenticatedError)]
    told = ([error for error in refusals if not isinstance(error, NotATokenError)] or refusals)[0]
    told.due = max(error.due for error in refusals)
    return told
