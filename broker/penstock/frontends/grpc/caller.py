"""Who calls: the credentials of a call's metadata, checked, and the connection it came on."""

import base64
import binascii
from dataclasses import dataclass

from penstock.identity import Person
from penstock.kit.peers import Source, is_loopback
from penstock.model.errors import NotAuthenticatedError
from penstock.model.names import ConnectionId
from penstock.services.ports import Accounts, SignIn
from penstock.vhost.actor import Actor

_WAY_OUT = "send `authorization: Basic base64(user:password)`, or `Bearer` and a token, in the call's metadata"


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody authenticated, on a connection."""

    user: Person
    connection: ConnectionId
    accounts: Accounts

    def actor(self, vhost: str) -> Actor:
        """The same caller with what is allowed in one vhost."""
        return self.accounts.actor(self.user, vhost, self.connection)


async def authenticate(
    sign_in: SignIn, authorization: str, peer: str, certificate: bytes = b"", connection: int = 0
) -> Person:
    """Who `Basic` credentials or a `Bearer` token say; without either, the connection's certificate. Raises
    NotAuthenticatedError."""
    is_near = is_loopback(peer)
    if certificate and not authorization:
        return await sign_in.log_in_by_certificate(certificate, is_loopback=is_near)
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return await sign_in.log_in_by_token(token.strip(), is_loopback=is_near)
    name, password = credentials_of(authorization)
    source = Source.of(peer, connection)
    return await sign_in.log_in(name, password, is_loopback=is_near, source=source)


def credentials_of(authorization: str) -> tuple[str, str]:
    """Name and password of a `Basic` header; the password may hold colons."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise NotAuthenticatedError("", _WAY_OUT)
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError) as error:
        raise NotAuthenticatedError("", _WAY_OUT) from error
    name, colon, password = text.partition(":")
    if not colon or not name:
        raise NotAuthenticatedError("", _WAY_OUT)
    return name, password
