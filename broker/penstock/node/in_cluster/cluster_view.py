"""The parts of a broker in its cluster that the calls of operators use."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from penstock.cluster.host import ClusterHost
from penstock.cluster.meta.member import MetaMember
from penstock.cluster.record import BrokerName
from penstock.model.names import VhostName
from penstock.node.in_cluster.metadata import Metadata


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`cluster` is its name; `is_alive` returns whether the session of a broker goes on.

    `directory_of` returns the folder that has the log of a virtual host, if this broker has it.
    """

    cluster: str
    host: ClusterHost
    member: MetaMember
    metadata: Metadata
    is_alive: Callable[[BrokerName], bool]
    directory_of: Callable[[VhostName], Path]
