"""From the metadata of a call to credentials."""

import base64
import binascii

from penstock.services import Certificate, Credentials, NoCredentials, Password, Token

_WAY_OUT = "send `authorization: Basic base64(user:password)`, or `Bearer` and a token, in the call's metadata"


def credentials_of(authorization: str, certificate: bytes = b"") -> Credentials:
    """Return what `Basic` or `Bearer` says, or else the connection's certificate. A password may hold colons."""
    if certificate and not authorization:
        return Certificate(certificate)
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return Token(encoded.strip())
    if scheme.lower() != "basic":
        return NoCredentials(_WAY_OUT)
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8")
    except (binascii.Error, ValueError):
        return NoCredentials(_WAY_OUT)
    name, colon, password = text.partition(":")
    return Password(name, password) if colon and name else NoCredentials(_WAY_OUT)
