"""Reads the address of any AMQP 0-9-1 broker: `amqp://user:password@host:port/vhost`, each part optional.

Parts may be percent-encoded. No path, and the path `/`, are the virtual host `/`, as in most clients; `//` and `/%2F`
are, too. An error never repeats a password.
"""

from dataclasses import dataclass, field
from urllib.parse import SplitResult, unquote, urlsplit

__all__ = ["AmqpAddress", "parse_amqp_uri"]

PORT = 5672
GUEST = "guest"
EXAMPLE = "amqp://user:password@host:5672/vhost"


@dataclass(frozen=True, slots=True)
class AmqpAddress:
    """Where a broker is, who speaks to it, and which virtual host they mean."""

    host: str = "127.0.0.1"
    port: int = PORT
    user: str = GUEST
    # None where the URI has none.
    password: str | None = field(default=None, repr=False)
    vhost: str = "/"


def parse_amqp_uri(uri: str) -> AmqpAddress:
    """Return the address that `uri` names. Raises ValueError."""
    parts = _split(uri)
    host = parts.hostname
    if not host:
        raise ValueError(f"the URI has no host; write {EXAMPLE}")
    user = GUEST if parts.username is None else unquote(parts.username)
    password = None if parts.password is None else unquote(parts.password)
    return AmqpAddress(host, _port(parts), user, password, unquote(parts.path.removeprefix("/")) or "/")


def _split(uri: str) -> SplitResult:
    try:
        parts = urlsplit(uri)
    except ValueError:
        raise ValueError("the URI's host cannot be read; percent-encode '[' and ']' in a user or password") from None
    if parts.scheme == "amqps":
        raise ValueError("perf amqp has no TLS; write amqp:// and the port of a listener without TLS")
    if parts.scheme != "amqp" or not uri.lower().startswith("amqp://"):
        raise ValueError(f"the URI must start with amqp://, as in {EXAMPLE}")
    if parts.query or parts.fragment:
        raise ValueError("the URI has a query or a fragment; percent-encode '?' as %3F and '#' as %23")
    return parts


def _port(parts: SplitResult) -> int:
    try:
        return PORT if parts.port is None else parts.port
    except ValueError:
        raise ValueError("the URI's port must be a number from 1 to 65535") from None
