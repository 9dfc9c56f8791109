"""Reads and writes a broker's address: `penstock://user:password@host:port/vhost`, or `penstocks://` for TLS.

A broker with several addresses has them with commas between: `host1:port,host2:port`. They are tried in order.

TLS takes a query: `?ca=FILE&cert=FILE&key=FILE&server_name=NAME`, all of it optional. With or without TLS,
`?follow=false` has the client stay with these addresses, also where a broker of a cluster names another one.

Every part may be percent-encoded, and must be where it holds a character that delimits a URI. A token is written as the
password of an empty user. An error names the part and the way out, and never repeats a password, nor does its cause:
where a password has a delimiter, any part of the URI may be a part of the password.
"""

import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from penstock.client.errors import InvalidUriError

__all__ = ["Address", "Tls", "credentials_in", "format_uri", "parse_uri"]

SCHEME = "penstock"
TLS_SCHEME = "penstocks"
PORT = 5680
HOST = "127.0.0.1"
GUEST = "guest"
NAME_BYTES_MAX = 255
HOSTS_MAX = 16
FOLLOW = "follow"

_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_AUTHORITY = re.compile(r"([^/?#]*//)([^/?#]*)(.*)", re.DOTALL)
# All that a URI without TLS may have: a password may have a '?', too, and what follows it is not to be repeated.
_PLAIN_QUERY = re.compile(r"follow=[a-z]*")
_NOT_PRINTED = re.compile(r"[\x00-\x20\x7f]")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a URI: trusted CAs (None: those of the machine) and a client certificate (None: no certificate)."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    # What the broker's certificate must be for, when it is not the host.
    server_name: str | None = None

    def texts(self) -> tuple[str, str, str, str]:
        """Return the authorities, certificate and key as PEM texts, and the server's name; empty for those not set.

        Raises InvalidUriError when a file cannot be read.
        """
        return (_pem("ca", self.ca), _pem("cert", self.cert), _pem("key", self.key), self.server_name or "")


def _pem(name: str, file: str | None) -> str:
    if file is None:
        return ""
    try:
        return Path(file).read_text(encoding="ascii")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise InvalidUriError(f"the URI's {name} file '{file}' cannot be read: {why}") from error
    except UnicodeDecodeError as error:
        raise InvalidUriError(f"the URI's {name} file '{file}' is not a PEM file; name a PEM file") from error


@dataclass(frozen=True, slots=True)
class Address:
    """Where a broker is, who speaks to it, and which vhost they mean.

    `others` are further hosts and ports of the same broker, to try after the first.
    """

    host: str = HOST
    port: int = PORT
    user: str = GUEST
    password: str = field(default=GUEST, repr=False)
    vhost: str = "/"
    # Plaintext without.
    tls: Tls | None = None
    others: tuple[tuple[str, int], ...] = ()
    # Whether to connect to leaders that brokers name.
    follows: bool = True

    @property
    def target(self) -> str:
        """The first `host:port`, with an IPv6 host in brackets."""
        return _target(self.host, self.port)

    @property
    def targets(self) -> tuple[str, ...]:
        """All of them, in the order in which they are tried."""
        return (self.target, *(_target(host, port) for host, port in self.others))

    @property
    def authorization(self) -> str:
        """Return the `authorization` metadata of calls; empty if the certificate names the user."""
        if not self.user:
            return f"Bearer {self.password}" if self.password else ""
        return "Basic " + b64encode(f"{self.user}:{self.password}".encode()).decode("ascii")


def parse_uri(uri: str) -> Address:
    """Return the address that `uri` names. Raises InvalidUriError."""
    first, *others = [_parsed(each) for each in _one_by_one(uri)]
    return replace(first, others=tuple((other.host, other.port) for other in others))


def credentials_in(uri: str) -> tuple[str | None, str | None]:
    """Return the user and the password as they are written in a URI, None where it has none."""
    parts = _split(_one_by_one(uri)[0])
    return parts.username, parts.password


def _one_by_one(uri: str) -> list[str]:
    """Return a URI for each host of `uri`."""
    found = _AUTHORITY.fullmatch(uri)
    if found is None:
        return [uri]
    scheme, authority, rest = found.groups()
    who, at, hosts = authority.rpartition("@")
    names = hosts.split(",")
    if len(names) > HOSTS_MAX:
        raise InvalidUriError(f"the URI has more than {HOSTS_MAX} hosts; percent-encode ',' in a user or password")
    return [f"{scheme}{who}{at}{name}{rest}" for name in names]


def _parsed(uri: str) -> Address:
    parts = _split(uri)
    options = _options(parts)
    follows = _follows(options.pop(FOLLOW, ""))
    tls = _tls(options) if parts.scheme == TLS_SCHEME else None
    user, password = _user(parts), _decoded(parts.password, "password") if parts.password is not None else GUEST
    if tls is not None and tls.cert is not None and parts.username is None:
        # The certificate says who it is.
        user = password = ""
    return Address(_host(parts), _port(parts), user, password, _vhost(parts.path), tls, follows=follows)


def format_uri(address: Address) -> str:
    """Return the URI that `parse_uri` reads as `address`."""
    is_certified = not address.user and address.tls is not None and address.tls.cert is not None
    who = (
        ""
        if is_certified and not address.password
        else f"{quote(address.user, safe='')}:{quote(address.password, safe='')}@"
    )
    vhost = "" if address.vhost == "/" else quote(address.vhost, safe="")
    where = ",".join(address.targets)
    options = {} if address.follows else {FOLLOW: "false"}
    if address.tls is not None:
        options |= {name: value for name, value in asdict(address.tls).items() if value is not None}
    query = f"?{urlencode(options)}" if options else ""
    return f"{SCHEME if address.tls is None else TLS_SCHEME}://{who}{where}/{vhost}{query}"


def _target(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _split(uri: str) -> SplitResult:
    if _NOT_PRINTED.search(uri):
        raise InvalidUriError("the URI contains a space or a control character; percent-encode it")
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise InvalidUriError(
            "the URI's host cannot be read; percent-encode '[' and ']' in a user or password"
        ) from None
    if parts.scheme not in {SCHEME, TLS_SCHEME} or not uri.lower().startswith(f"{parts.scheme}://"):
        raise InvalidUriError(f"the URI must start with {SCHEME}://, as in {SCHEME}://guest:guest@{HOST}:{PORT}/")
    if "#" in uri or ("?" in uri and parts.scheme == SCHEME and _PLAIN_QUERY.fullmatch(parts.query) is None):
        raise InvalidUriError("the URI has a query or a fragment; percent-encode '?' as %3F and '#' as %23")
    if _BAD_PERCENT.search(uri):
        raise InvalidUriError(
            "the URI contains a '%' without two hexadecimal digits after it; write a plain '%' as %25"
        )
    return parts


def _options(parts: SplitResult) -> dict[str, str]:
    known = {FOLLOW} | ({one.name for one in fields(Tls)} if parts.scheme == TLS_SCHEME else set())
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    if "@" in parts.query:
        raise InvalidUriError("the URI's query has '@'; percent-encode it as %40, and '?' in a password as %3F")
    unknown = sorted(set(options) - known)
    if unknown:
        raise InvalidUriError(f"the URI's query has '{unknown[0]}'; it takes {', '.join(sorted(known))}")
    return options


def _follows(text: str) -> bool:
    if text not in {"", "true", "false"}:
        raise InvalidUriError("the URI's query has 'follow' with another value than 'true' or 'false'")
    return text != "false"


def _tls(options: Mapping[str, str]) -> Tls:
    tls = Tls(**{name: value for name, value in options.items() if value})
    if (tls.cert is None) != (tls.key is None):
        raise InvalidUriError("the URI's query has 'cert' or 'key' alone; set both")
    return tls


def _host(parts: SplitResult) -> str:
    host = parts.hostname
    if not host:
        raise InvalidUriError(f"the URI has no host, as in {SCHEME}://{HOST}:{PORT}/")
    if "@" in host or "%" in host:
        raise InvalidUriError("the URI's host contains '@' or '%'; percent-encode '@' in a user or password as %40")
    return host


def _port(parts: SplitResult) -> int:
    try:
        port = parts.port
    except ValueError:
        raise InvalidUriError("the URI's port must be a number from 1 to 65535; percent-encode ':' and '/'") from None
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
        raise InvalidUriError("the URI's user contains ':', which basic credentials cannot contain")
    return user


def _vhost(path: str) -> str:
    encoded = path[1:]
    if not encoded:
        return "/"
    if "/" in encoded:
        raise InvalidUriError("the URI's vhost contains '/'; percent-encode it as %2F")
    if "@" in encoded:
        raise InvalidUriError("the URI's vhost contains '@'; percent-encode it as %40, and '/' in a password as %2F")
    vhost = _decoded(encoded, "vhost")
    if len(vhost.encode()) > NAME_BYTES_MAX:
        raise InvalidUriError(f"the URI's vhost has more than {NAME_BYTES_MAX} bytes")
    return vhost


def _decoded(text: str, part: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise InvalidUriError(f"the URI's {part} is not UTF-8 after percent-decoding") from None
