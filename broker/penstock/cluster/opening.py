"""The coordinator that one line of the settings names.

`single` and `file:PATH` are directories, `etcd:ADDRESS,ADDRESS/PREFIX` is etcd, `kubernetes:CLUSTER` the API of the
Kubernetes that runs this pod.
"""

import os
from pathlib import Path
from typing import Final

from penstock.cluster.coordinator import Coordinator
from penstock.cluster.directory import DirectoryCoordinator
from penstock.model.errors import InvalidArgumentError, Thing

_FORMS: Final = "use 'single', 'file:PATH', 'etcd:http://HOST:2379,http://HOST:2379/PREFIX' or 'kubernetes:CLUSTER'"
SINGLE_DIRECTORY: Final = "coordinator"


def open_coordinator(text: str, data_directory: Path) -> Coordinator:
    """Return the coordinator of a line. Raises InvalidArgumentError and StorageError."""
    kind, _, rest = text.partition(":")
    if text == "single":
        return DirectoryCoordinator(data_directory / SINGLE_DIRECTORY)
    if kind == "file" and rest:
        return DirectoryCoordinator(Path(rest))
    if kind == "etcd" and rest:
        from penstock.cluster.etcd import EtcdCoordinator

        return EtcdCoordinator(*_addresses(text, rest))
    if kind == "kubernetes" and rest:
        from penstock.cluster.kubernetes import in_pod

        return in_pod(rest, os.environ)
    raise _unknown(text)


def _addresses(text: str, rest: str) -> tuple[list[str], str]:
    """Return the addresses of etcd's servers and the prefix, which follows the last one."""
    *others, last = rest.split(",")
    scheme, found, place = last.partition("://")
    host, _, prefix = place.partition("/")
    addresses = [*others, f"{scheme}{found}{host}"]
    for address in addresses:
        if not address.startswith(("http://", "https://")) or len(address.split("/")) != 3 or address.endswith("/"):
            raise _unknown(text)
    return addresses, prefix or "penstock"


def _unknown(text: str) -> InvalidArgumentError:
    return InvalidArgumentError(Thing("coordinator", text), "is unknown", _FORMS, field="coordinator")
