"""Where a connection comes from, read from the text of its address. Anything that cannot be read counts as far away."""

import ipaddress


def is_loopback(peer: str) -> bool:
    """Whether `host:port`, `[host]:port` or a bare host is this machine."""
    host = peer
    if peer.startswith("["):
        host = peer[1:].partition("]")[0]
    elif peer.count(":") == 1:
        host = peer.partition(":")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
