"""What the clients of AMQP share: three brokers, the seed of a quick run, and the table of all clients at its end."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import randrange

import pytest
import trustme

from conformance.clients.outcome import Outcome, table
from conformance.clients.runs import ROOT, Certificates, Run
from support import Broker
from support.broker import free_ports, penstock_command

OUTCOMES = pytest.StashKey[list[Outcome]]()
SEED = pytest.StashKey[int | None]()

# The suites publish larger messages than the default allows, also at RabbitMQ.
_SIZE = "message_bytes_max = 67108864\n"
# No disk has so much free space.
_FULL = "disk_free_bytes_min = 1125899906842624\n"
_TLS = """metrics_tls = false
tls_certificate = "{folder}/server.pem"
tls_key = "{folder}/server.key"
tls_client_ca = "{folder}/authority.pem"
tls_client_auth = "optional"
"""


def pytest_configure(config: pytest.Config) -> None:
    is_long = os.environ.get("CONFORMANCE_ALL") == "1"
    config.stash[SEED] = None if is_long else int(os.environ.get("CONFORMANCE_SEED") or randrange(2**32))
    config.stash[OUTCOMES] = []


def pytest_report_header(config: pytest.Config) -> str:
    seed = config.stash[SEED]
    if seed is None:
        return "clients: all cases"
    return f"clients: cases of seed {seed} (CONFORMANCE_SEED={seed} repeats them)"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    outcomes = config.stash[OUTCOMES]
    if outcomes:
        terminalreporter.section("clients")
        terminalreporter.write_line(table(outcomes))
        terminalreporter.write_line(pytest_report_header(config))


@pytest.fixture(scope="session")
def outcomes(pytestconfig: pytest.Config) -> list[Outcome]:
    """Return the list from which the table is made."""
    return pytestconfig.stash[OUTCOMES]


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with an authority, and a server's and a client's certificate with their keys."""
    folder, authority = tmp_path_factory.mktemp("certificates"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "authority.pem"))
    for name, made in (
        ("server", authority.issue_cert("localhost", "127.0.0.1")),
        ("client", authority.issue_cert("client", common_name="guest")),
        ("foreign", trustme.CA().issue_cert("client", common_name="guest")),
    ):
        made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
        (folder / f"{name}.pem").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
    return folder


@pytest.fixture(scope="session")
def run(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory, certificates: Path) -> Iterator[Run]:
    """Start a broker without TLS, one with it and one with a full disk, and keep what clients build in target/."""
    plain, web, tls, full = free_ports(4)
    folder = tmp_path_factory.mktemp("clients")
    settings = {"plain": _SIZE, "tls": _SIZE + _TLS.format(folder=certificates), "full": _FULL}
    for name, text in settings.items():
        (folder / f"{name}.toml").write_text(text)

    def broker(name: str, *flags: str) -> Broker:
        return Broker(folder / name, *flags, "--config", str(folder / f"{name}.toml"))

    with (
        broker("plain", "--amqp", f"127.0.0.1:{plain}", "--amqp-ws", f"127.0.0.1:{web}") as first,
        broker("tls", "--amqp", f"127.0.0.1:{tls}"),
        broker("full", "--amqp", f"127.0.0.1:{full}"),
    ):
        names = ("authority.pem", "client.pem", "client.key", "foreign.pem", "foreign.key")
        files = Certificates(*(certificates / name for name in names))
        work = ROOT / "target" / "conformance"
        yield Run(plain, web, tls, full, first.uri(), files, work, pytestconfig.stash[SEED], penstock_command())
