"""The origin of a connection, parsed from the text of its address.

An address that cannot be parsed counts as remote.
"""

import ipaddress
from typing import NamedTuple


class Source(NamedTuple):
    """The origin of a call: an address without its port, and the number of the connection."""

    address: str = ""
    connection: int = 0

    @classmethod
    def of(cls, peer: str, connection: int) -> "Source":
        return cls(_host(peer), connection)


NOWHERE = Source()
# How the addresses of Unix sockets begin; those of the network begin with a number or a bracket.
UNIX = "unix:"


def is_loopback(peer: str) -> bool:
    """Return whether `host:port`, `[host]:port`, a bare host or `unix:path` is this machine."""
    if peer.startswith(UNIX):
        return True
    try:
        address = ipaddress.ip_address(_host(peer))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _host(peer: str) -> str:
    if peer.startswith(UNIX):
        return peer
    if peer.startswith("["):
        return peer[1:].partition("]")[0]
    return peer.partition(":")[0] if peer.count(":") == 1 else peer
