"""The verbs of a cluster: how they name the broker that refuses."""

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.identity import Tag, User
from penstock.model.errors import AccessRefusedError, PreconditionFailedError
from penstock.model.names import ConnectionId
from penstock.services import Connection, Principal
from penstock.services.cluster import ClusterVerbs
from penstock.services.ports import Cluster, Node

HOST = cast(Node, SimpleNamespace(state=lambda: SimpleNamespace(node="pod-7f9c")))
BROKER = cast(Cluster, SimpleNamespace(broker="mq-1"))


def ask(cluster: Cluster | None, *tags: str) -> None:
    clara = Principal(User("clara", "", tags=tuple(map(Tag, tags))), Connection(ConnectionId(1)))
    asyncio.run(ClusterVerbs(cluster, HOST).get_cluster_status(clara))


def test_a_refusal_names_the_broker_as_its_cluster_does() -> None:
    """It named the host, which `penstock cluster status` does not show."""
    with pytest.raises(AccessRefusedError, match="broker 'mq-1'"):
        ask(BROKER)


def test_a_broker_in_no_cluster_has_the_name_of_its_host() -> None:
    with pytest.raises(PreconditionFailedError, match="broker 'pod-7f9c' is in no cluster"):
        ask(None, "administrator")
