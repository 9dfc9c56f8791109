"""Reads a Secret that leads to a broker which the operator does not run.

The author of the Secret chooses where the operator connects. Therefore its address names one host and nothing else: no
file, no option, no virtual host, none of the operator's own machine. A name may still lead to any address: names are
resolved when the operator connects. The boundary is a network policy.
"""

import base64
import binascii
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from penstock.client.errors import InvalidUriError
from penstock.client.uri import Address, credentials_in, parse_uri
from penstock_operator.desired.accounts import Refused
from penstock_operator.desired.naming import Endpoint

TEXT_BYTES_MAX: Final = 2_048
# A bundle of some tens of certificates.
PEM_BYTES_MAX: Final = 65_536
_AUTHORITY, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"
# A name within a domain, whose last label is none of a number: name servers and libraries read numbers as addresses.
_NAME: Final = re.compile(r"(?:[a-z0-9](?:[-a-z0-9]*[a-z0-9])?\.)+[a-z](?:[-a-z0-9]*[a-z0-9])?")
_NAME_LENGTH_MAX: Final = 253
# Names that resolvers answer with loopback addresses without asking the cluster's DNS.
_OWN_NAME: Final = re.compile(r"(?:.*\.)?localhost(?:\.localdomain[46]?)?")
# IPv6 addresses whose last 32 bits a gateway, or the machine itself, takes for an IPv4 address.
_TRANSLATED: Final = tuple(map(ipaddress.IPv6Network, ("64:ff9b::/96", "::/96")))


@dataclass(frozen=True, slots=True)
class Connection:
    """Where a broker is, the operator's own account there, and what it trusts and shows, in PEM."""

    endpoint: Endpoint
    user: str
    password: str = field(repr=False)
    authority: str = ""
    shown: tuple[str, str] | None = field(default=None, repr=False)


class _ProblemError(Exception):
    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


def read_connection(name: str, data: Mapping[str, str]) -> Connection | Refused:
    """Return the connection in a Secret's data, or what is wrong with it. No sentence repeats a value of the Secret."""
    try:
        return _read(data)
    except _ProblemError as problem:
        return Refused(problem.reason, f"the Secret '{name}' {problem}")


def _read(data: Mapping[str, str]) -> Connection:
    uri = _text(data, "uri", TEXT_BYTES_MAX)
    if not uri:
        raise _incomplete("lacks the key 'uri'; add one such as penstocks://mq.example.com:5680")
    address = _address(uri)
    user, password = _credentials(data, uri, address)
    authority, shown = _text(data, _AUTHORITY, PEM_BYTES_MAX), _shown(data)
    if address.tls is None and (authority or shown):
        raise _invalid(
            "has certificates, and its uri is without TLS; write penstocks://, or leave the certificates out"
        )
    for key in (_AUTHORITY, _CERTIFICATE, _KEY) if address.tls is not None else ():
        if data.get(key) and "-----BEGIN " not in _text(data, key, PEM_BYTES_MAX):
            raise _invalid(f"has no PEM in its key '{key}'; write one that begins with -----BEGIN")
    return Connection(Endpoint(address.host, address.port, address.tls is not None), user, password, authority, shown)


def _address(uri: str) -> Address:
    if "?" in uri:
        raise _invalid("has options in its uri; write certificates into the keys ca.crt, tls.crt and tls.key instead")
    try:
        address = parse_uri(uri)
    except InvalidUriError as error:
        raise _invalid(f"has a wrong uri: {error}") from error
    if address.others:
        raise _invalid("has several hosts in its uri; write one")
    if address.vhost != "/":
        raise _invalid("has a virtual host in its uri; leave it out, as objects have a field for it")
    _check_host(address.host)
    return address


def _check_host(host: str) -> None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        if len(host) > _NAME_LENGTH_MAX or _NAME.fullmatch(host) is None:
            raise _invalid("has a wrong host in its uri; write a name with its domain, such as mq.shop.svc") from None
        if _OWN_NAME.fullmatch(host):
            raise _own_machine() from None
        return
    for each in (found, *_inner(found)):
        if each.is_loopback or each.is_link_local or each.is_unspecified or each.is_multicast:
            raise _own_machine()


def _inner(found: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """Return the IPv4 addresses that an IPv6 address may lead to."""
    if isinstance(found, IPv4Address):
        return []
    last = IPv4Address(int(found) & 0xFFFFFFFF)
    is_translated = any(found in each for each in _TRANSLATED)
    return [each for each in (found.ipv4_mapped, found.sixtofour, last if is_translated else None) if each is not None]


def _own_machine() -> _ProblemError:
    return _invalid("has an address of the operator's own machine in its uri; write one that reaches the broker")


def _credentials(data: Mapping[str, str], uri: str, address: Address) -> tuple[str, str]:
    """Return user and password. The keys count before the URI, which may hold both as the operator's Secrets do."""
    in_uri = credentials_in(uri)
    user = _text(data, "username", TEXT_BYTES_MAX) or (address.user if in_uri[0] else "")
    password = _text(data, "password", TEXT_BYTES_MAX) or (address.password if in_uri[1] else "")
    missing = [key for key, value in (("username", user), ("password", password)) if not value]
    if missing:
        raise _incomplete(f"lacks the key '{missing[0]}'; add the operator's own account on the broker")
    if ":" in user:
        raise _invalid("has ':' in its user name, which log-ins cannot have; choose another account")
    return user, password


def _shown(data: Mapping[str, str]) -> tuple[str, str] | None:
    certificate, key = (_text(data, name, PEM_BYTES_MAX) for name in (_CERTIFICATE, _KEY))
    if bool(certificate) != bool(key):
        raise _incomplete(f"has one of {_CERTIFICATE} and {_KEY}; add the other one, or leave both out")
    return (certificate, key) if certificate else None


def _text(data: Mapping[str, str], key: str, bytes_max: int) -> str:
    encoded = data.get(key) or ""
    if len(encoded) > bytes_max * 4 // 3 + 4:
        raise _invalid(f"has more than {bytes_max} bytes in its key '{key}'; write less")
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise _invalid(f"has a value that is not UTF-8 in its key '{key}'; write text") from error


def _incomplete(message: str) -> _ProblemError:
    return _ProblemError("SecretIncomplete", message)


def _invalid(message: str) -> _ProblemError:
    return _ProblemError("SecretInvalid", message)
