"""Principals: authenticated identities on connections.

A front end makes credentials from a client's data, `sessions` makes a principal from credentials, and every verb takes
a principal.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from hashlib import blake2b

from penstock.identity import Allowance, Identity, Tag
from penstock.model.errors import Thing
from penstock.model.names import ConnectionId, UserName
from penstock.services.connections import Connection
from penstock.vhost.rights import Rights

CatchUp = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Password:
    """A user's name and password."""

    user: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Token:
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate that was checked at the handshake, DER."""

    der: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class NoCredentials:
    """The client sent nothing that names a user; `way_out` says what to send."""

    way_out: str


Credentials = Password | Token | Certificate | NoCredentials


def digest_of(credentials: Credentials) -> bytes:
    """Return a short digest: a token may be long."""
    match credentials:
        case Password(user, password):
            shown = f"password {user}:{password}".encode(errors="surrogatepass")
        case Token(text):
            shown = f"token {text}".encode(errors="surrogatepass")
        case Certificate(der):
            shown = b"certificate " + der
        case NoCredentials():
            shown = b""
    return blake2b(shown, digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated identity on a connection. `mark` is the digest of the credentials.

    `catch_up` returns when this broker has all that the others of its cluster have answered; without a cluster there is
    none.
    """

    identity: Identity
    connection: Connection
    mark: bytes = b""
    catch_up: CatchUp | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        return self.identity.name

    @property
    def is_administrator(self) -> bool:
        return self.identity.is_administrator

    @property
    def tags(self) -> tuple[Tag, ...]:
        return self.identity.tags

    @property
    def connection_id(self) -> ConnectionId:
        return self.connection.id

    def in_vhost(self, vhost: str) -> Rights:
        """Return the principal's rights in one virtual host. Raises UndecidedError when they have to be asked for."""
        return self._rights(self.identity.allowance(vhost))

    def in_broker(self) -> Rights:
        """Return the principal's rights outside all virtual hosts, as its tags grant them."""
        return self._rights(None)

    def require_administrator(self, thing: Thing) -> None:
        """Raise AccessRefusedError unless the principal is an administrator."""
        self.in_broker().require_administrator(thing)

    def _rights(self, permissions: Allowance | None) -> Rights:
        return Rights(
            UserName(self.name),
            self.is_administrator,
            permissions,
            self.connection_id,
            Tag.POLICYMAKER in self.tags,
            Tag.MONITORING in self.tags,
        )
