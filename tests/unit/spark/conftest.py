"""A broker's Flight service in memory for each test."""

from collections.abc import Iterator

import pytest

from support.fake_flight import FakeFlight


@pytest.fixture
def server() -> Iterator[FakeFlight]:
    with FakeFlight() as server:
        yield server
