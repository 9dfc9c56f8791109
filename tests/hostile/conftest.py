"""A broker, a well-behaved client beside every case, and the table that is printed in the end."""

import resource
import ssl
import time
from collections.abc import Iterator
from threading import Event

import pytest
import trustme

from hostile.bystander import Bystander
from hostile.siege import SETTLE_SECONDS_MAX, Siege
from hostile.target import BUFFER_BYTES_MAX, FIRST_REQUEST_SECONDS, Target
from support import Broker
from support.broker import free_ports

_never = Event()


@pytest.fixture(scope="session")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    _raise_files()
    place = tmp_path_factory.mktemp("hostile")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    certificate.private_key_pem.write_to_path(place / "key.pem")
    for pem in certificate.cert_chain_pems:
        pem.write_to_path(place / "cert.pem", append=True)
    trust = ssl.create_default_context()
    authority.configure_trust(trust)
    plain, tls = place / "plain.toml", place / "tls.toml"
    plain.write_text(f"first_request_seconds = {FIRST_REQUEST_SECONDS}\nbuffer_bytes_max = {BUFFER_BYTES_MAX}\n")
    tls.write_text(
        f"first_request_seconds = {FIRST_REQUEST_SECONDS}\nmetrics_tls = false\n"
        f'tls_certificate = "{place}/cert.pem"\ntls_key = "{place}/key.pem"\n'
    )
    amqp = free_ports(1)[0]
    with (
        Broker(place / "data", "--config", str(plain), "--amqp", f"127.0.0.1:{amqp}") as broker,
        Broker(place / "tls-data", "--config", str(tls)) as other,
        Bystander(broker.uri(), place / "bystander.txt") as bystander,
    ):
        target = Target(broker.uri(), broker.grpc, broker.metrics, other.grpc, trust, amqp)
        until = time.monotonic() + SETTLE_SECONDS_MAX
        while bystander.count() < 50:
            assert time.monotonic() < until, "the client that behaves did not begin"
            _never.wait(0.05)
        siege = Siege(broker, target, bystander)
        yield siege
        print(f"\n{siege.table()}")


def _raise_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536) if hard > 0 else 65_536, hard))
