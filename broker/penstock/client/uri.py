"""Reads and writes a broker's address: `penstock://user:password@host:port/vhost`.

Every part may be percent-encoded, and must be where it holds a character that delimits a URI. An error names the part
and the way out, and never repeats a password.
"""

import re
from base64 import b64encode
from dataclasses import dataclass, field
from urllib.parse import SplitResult, quote, unquote, urlsplit

from penstock.client.errors import InvalidUriError

__all__ = ["Address", "format_uri", "parse_uri"]

SCHEME = "penstock"
PORT = 5680
HOST = "127.0.0.1"
GUEST = "guest"
NAME_BYTES_MAX = 255

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_NOT_PRINTED = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is, who speaks to it, and which vhost they mean."""

    host: str = HOST
    port: int = PORT
    user: str = GUEST
    password: str = field(default=GUEST, repr=False)
    vhost: str = "/"

    @property
    def target(self) -> str:
        """`host:port`, with an IPv6 host in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def authorization(self) -> str:
        """What the calls' `authorization` metadata carries."""
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


def parse_uri(uri: str) -> Address:
    """The address that `uri` names; raises InvalidUriError."""
    parts = _split(uri)
    return Address(
        host=_host(parts),
        port=_port(parts),
        user=_user(parts),
        password=_decoded(parts.password, "password") if parts.password is not None else GUEST,
        vhost=_vhost(parts.path),
    )


def format_uri(address: Address) -> str:
    """The URI that `parse_uri` reads as `address`."""
    user, password = quote(address.user, safe=""), quote(address.password, safe="")
    vhost = "" if address.vhost == "/" else quote(address.vhost, safe="")
    return f"{SCHEME}://{user}:{password}@{address.target}/{vhost}"


def _split(uri: str) -> SplitResult:
    if _NOT_PRINTED.search(uri):
        raise InvalidUriError("the URI holds a space or a control character; percent-encode it")
    try:
        parts = urlsplit(uri)
    except ValueError as error:
        raise InvalidUriError(f"the URI cannot be read: {error}") from error
    if parts.scheme == "penstocks":
        raise InvalidUriError("scheme 'penstocks' (TLS) is not served yet; use penstock://")
    if parts.scheme != SCHEME or not uri.lower().startswith(f"{SCHEME}://"):
        raise InvalidUriError(f"the URI must start with {SCHEME}://, as in {SCHEME}://guest:guest@{HOST}:{PORT}/")
    if "?" in uri or "#" in uri:
        raise InvalidUriError("the URI has a query or a fragment; percent-encode '?' as %3F and '#' as %23")
    if _BAD_PERCENT.search(uri):
        raise InvalidUriError("the URI holds a '%' that two hexadecimal digits do not follow; write a plain '%' as %25")
    return parts


def _host(parts: SplitResult) -> str:
    host = parts.hostname
    if not host:
        raise InvalidUriError(f"the URI names no host, as in {SCHEME}://{HOST}:{PORT}/")
    if "@" in host or "%" in host:
        raise InvalidUriError("the URI's host holds '@' or '%'; percent-encode '@' in a user or password as %40")
    return host


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError as error:
        raise InvalidUriError("the URI's port must be a number from 1 to 65535; percent-encode ':' and '/'") from error
    if port is None:
        return PORT
    if port == 0:
        raise InvalidUriError("the URI's port must be a number from 1 to 65535, not 0")
    return port


def _user(parts: SplitResult) -> str:
    if parts.username is None:
        return GUEST
    user = _decoded(parts.username, "user")
    if ":" in user:
        raise InvalidUriError("the URI's user holds ':', which basic credentials cannot carry")
    return user


def _vhost(path: str) -> str:
    encoded = path[1:]
    if not encoded:
        return "/"
    if "/" in encoded:
        raise InvalidUriError("the URI's vhost holds '/'; percent-encode it as %2F")
    vhost = _decoded(encoded, "vhost")
    if len(vhost.encode()) > NAME_BYTES_MAX:
        raise InvalidUriError(f"the URI's vhost has more than {NAME_BYTES_MAX} bytes")
    return vhost


def _decoded(text: str, part: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidUriError(f"the URI's {part} is not UTF-8 once percent-decoded") from error
