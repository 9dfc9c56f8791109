"""The fixtures of aiormq's suite that its distribution lacks: where the broker is. Copied into the unpacked suite."""

import os
from dataclasses import dataclass

import pytest
from yarl import URL


@dataclass
class Container:
    """What the suite knows of a container."""

    ports: dict[str, int]
    host: str = "localhost"


@pytest.fixture(scope="session")
def rabbitmq_container() -> Container:
    return Container({f"{port}/tcp": int(os.environ[f"RABBITMQ_{port}_TCP"]) for port in ("5672", "5671")})


@pytest.fixture(scope="session")
def amqp_direct_url(rabbitmq_container: Container) -> URL:
    port = rabbitmq_container.ports["5672/tcp"]
    return URL.build(scheme="amqp", user="guest", password="guest", path="//", host="localhost", port=port)
