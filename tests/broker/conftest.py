"""Fixtures: a virtual host for each test, and connections to it, with the native module and without."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from uuid import uuid4

import pytest

import penstock
from support import Broker
from support.broker import shards_of_this_run
from support.issuer import Issuer, serving

Connect = Callable[[], penstock.Connection]


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with serving() as started:
        yield started


@pytest.fixture
def vhost(broker: Broker) -> Iterator[str]:
    name = f"test-{uuid4().hex[:12]}"
    with penstock.connect(broker.uri()) as root:
        root.admin.create_vhost(name, shards_of_this_run())
        root.admin.set_permission("guest", name, configure=".*", write=".*", read=".*")
        yield name
        root.admin.delete_vhost(name)


@pytest.fixture(params=[True, False], ids=["native", "pure"])
def connect(request: pytest.FixtureRequest, broker: Broker, vhost: str) -> Iterator[Connect]:
    """Return a function that makes connections; they are closed after the test."""
    with ExitStack() as open_connections:
        yield lambda: open_connections.enter_context(penstock.connect(broker.uri(vhost), native=request.param))


@pytest.fixture
def connection(connect: Connect) -> penstock.Connection:
    return connect()
