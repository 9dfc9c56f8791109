"""What every suite gets: hypothesis profiles, and a broker as a process for those that ask for one."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from support import Broker

settings.register_profile("dev", deadline=None, max_examples=50)
settings.register_profile("ci", deadline=None, max_examples=200, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One broker for all tests that leave it running; each takes a virtual host or names of its own."""
    with Broker(tmp_path_factory.mktemp("broker") / "data") as started:
        yield started
