"""The files of TLS: when the served certificates expire, also after a change that cannot be used."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme

from penstock.node.config import Settings
from penstock.node.tls import TlsFiles

FIRST, SECOND = datetime(2030, 1, 2, tzinfo=UTC), datetime(2031, 1, 2, tzinfo=UTC)


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


def write(folder: Path, name: str, authority: trustme.CA, until: datetime) -> None:
    made = authority.issue_cert("mq.example.com", not_after=until)
    made.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    (folder / f"{name}.crt").write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))


def files(folder: Path, **more: str) -> TlsFiles:
    certificate, key = folder / "server.crt", folder / "server.key"
    settings = Settings.model_validate({"tls_certificate": certificate, "tls_key": key, **more})
    return TlsFiles(settings, certificate, key)


def test_the_expiry_of_the_served_certificate_is_known(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, "server", authority, FIRST)
    found = files(tmp_path)
    assert found.expiries() == {}

    found.load()
    assert found.expiries() == {"server.crt": FIRST.timestamp()}

    write(tmp_path, "server", authority, SECOND)
    assert found.reload() is not None
    assert found.expiries() == {"server.crt": SECOND.timestamp()}


def test_a_change_that_cannot_be_used_keeps_the_expiry_of_what_is_served(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, "server", authority, FIRST)
    found = files(tmp_path)
    found.load()

    write(tmp_path, "server", authority, SECOND)
    (tmp_path / "server.key").write_text("no key")

    assert found.reload() is None
    assert found.expiries() == {"server.crt": FIRST.timestamp()}


def test_certificates_of_other_names_count_and_authorities_of_clients_do_not(
    tmp_path: Path, authority: trustme.CA
) -> None:
    names = tmp_path / "names"
    names.mkdir()
    write(tmp_path, "server", authority, FIRST)
    write(names, "other.example.com", authority, SECOND)
    clients = tmp_path / "clients.crt"
    authority.cert_pem.write_to_path(str(clients))
    found = files(tmp_path, tls_names_dir=str(names), tls_client_ca=str(clients), tls_client_auth="required")

    found.load()

    assert found.expiries() == {"server.crt": FIRST.timestamp(), "other.example.com.crt": SECOND.timestamp()}


def test_of_a_chain_the_first_one_to_expire_counts(tmp_path: Path, authority: trustme.CA) -> None:
    write(tmp_path, "server", authority, SECOND)
    sooner = authority.issue_cert("sooner.example.com", not_after=FIRST)
    with (tmp_path / "server.crt").open("ab") as chain:
        chain.write(sooner.cert_chain_pems[0].bytes())
    found = files(tmp_path)

    found.load()

    assert found.expiries() == {"server.crt": FIRST.timestamp()}
