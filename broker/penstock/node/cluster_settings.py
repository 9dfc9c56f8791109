"""Rules for the settings of a broker in a cluster: which belong together, and what the brokers' addresses are.

It reads values and opens nothing. It must not load the native module, because the command line reads settings, too.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from penstock.kit.peers import is_loopback

Values = Mapping[str, Any]
"""The settings by their names."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")
_ADDRESS: Final = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/=,]+):[0-9]{1,5}")
_NEEDED: Final = ("cluster_broker", "cluster_brokers", "cluster_coordinator", "cluster_secret_file")
_TLS: Final = ("cluster_tls_certificate", "cluster_tls_key", "cluster_tls_ca")
_NO_NAME: Final = "a name has up to 100 of a-z, 0-9, '.' and '-', first a letter or digit"


def brokers_of(text: str) -> dict[str, str]:
    """Return the addresses of brokers by their names. Raises ValueError."""
    found: dict[str, str] = {}
    for word in filter(None, (word.strip() for word in text.split(","))):
        name, _, address = word.partition("=")
        if not _NAME.fullmatch(name) or not _ADDRESS.fullmatch(address):
            raise ValueError(f"cluster_brokers has {word!r}; write each broker like mq-0=10.0.0.5:5681; {_NO_NAME}")
        if name in found or address in found.values():
            raise ValueError(f"cluster_brokers has {name!r} or its address twice; name each broker once")
        found[name] = address
    return found


def host_of(address: str) -> str:
    """Return the host of HOST:PORT, without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def problem_of_cluster(values: Values, given: Collection[str]) -> str:
    """Return why the settings of a cluster do not fit; an empty text when they do. `given` are not left at defaults."""
    if not values["cluster"]:
        first = next((name for name in sorted(given) if name.startswith("cluster_")), None)
        return f"{first} is of a broker in a cluster; set cluster, too, or leave {first} out" if first else ""
    missing = [name for name in _NEEDED if not values[name]]
    if missing:
        return f"cluster needs {', '.join(missing)}; set all of {', '.join(_NEEDED)}"
    if not _NAME.fullmatch(values["cluster"]):
        return f"cluster is {values['cluster']!r}; {_NO_NAME}"
    try:
        brokers = brokers_of(values["cluster_brokers"])
    except ValueError as error:
        return str(error)
    return _problem_of_parts(values, brokers)


def _problem_of_parts(values: Values, brokers: Mapping[str, str]) -> str:
    if values["cluster_broker"] not in brokers:
        known = ", ".join(brokers)
        return f"cluster_broker is {values['cluster_broker']!r}, and cluster_brokers has {known}; name one of them"
    if values["cluster_coordinator"] == "single":
        return "cluster_coordinator is 'single', which is of one broker; name etcd, kubernetes or file"
    given = [name for name in _TLS if values[name] is not None]
    if given and len(given) < len(_TLS):
        return f"{', '.join(_TLS)} belong together; set all or none"
    host = host_of(values["cluster_peers"])
    if not given and host != "localhost" and not is_loopback(host):
        return f"cluster_peers can be reached from other machines; set {', '.join(_TLS)}, or listen on loopback"
    return ""
