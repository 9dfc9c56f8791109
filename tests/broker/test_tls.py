"""TLS for clients and operators: trust, client certificates, and certificates that change at run time.

A CA made for each run issues the certificates.
"""

import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
import trustme

import penstock
from support import Broker
from support.broker import BrokerError
from support.waiting import eventually

HOST = "127.0.0.1"


class Files:
    """A CA, and the files of a broker's configuration."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = trustme.CA()
        self.ca = folder / "ca.pem"
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.write("server", self.authority.issue_cert(HOST, "localhost"))

    def write(self, name: str, certificate: trustme.LeafCert) -> None:
        """Write `name`.crt and `name`.key, the key first: a broker that reads in between keeps its old ones."""
        certificate.private_key_pem.write_to_path(str(self.folder / f"{name}.key"))
        chain = b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        (self.folder / f"{name}.crt").write_bytes(chain)

    def configuration(self, **more: str) -> str:
        settings = {"tls_certificate": f"{self.folder}/server.crt", "tls_key": f"{self.folder}/server.key", **more}
        path = self.folder / "broker.toml"
        path.write_text("".join(f'{name} = "{value}"\n' for name, value in settings.items()))
        return str(path)

    def broker(self, **more: str) -> Broker:
        trust = ssl.create_default_context(cafile=str(self.ca))
        return Broker(self.folder / "data", "--config", self.configuration(**more), trust=trust)

    def uri(self, broker: Broker, **query: str) -> str:
        options = urlencode({"ca": str(self.ca), **query})
        return f"penstocks://guest:guest@{broker.address}/?{options}"


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.fixture
def broker(files: Files) -> Iterator[Broker]:
    with files.broker() as running:
        yield running


def shown(broker: Broker, server_name: str = HOST, version: ssl.TLSVersion | None = None) -> tuple[bytes, str | None]:
    """Return the broker's certificate and the TLS version, for a client that trusts all."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if version is not None:
        context.minimum_version = context.maximum_version = version
    with (
        socket.create_connection((HOST, broker.grpc), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=server_name) as secured,
    ):
        return secured.getpeercert(binary_form=True) or b"", secured.version()


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_message_goes_there_and_back(files: Files, broker: Broker, native: bool) -> None:
    with penstock.connect(files.uri(broker), native=native) as connection:
        connection.declare_queue("secrets")
        connection.publish(b"psst", routing_key="secrets")

        found = connection.get("secrets")
        assert found is not None
        assert found.body == b"psst"


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_broker_of_another_authority_is_not_trusted(
    files: Files, broker: Broker, native: bool, tmp_path: Path
) -> None:
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(str(stranger))

    with pytest.raises(penstock.ConnectionLostError, match="is not trusted; name its CA"):
        penstock.connect(files.uri(broker, ca=str(stranger)), native=native, timeout=5)


def test_a_certificate_for_another_host_is_not_trusted_unless_it_is_named(files: Files, broker: Broker) -> None:
    with pytest.raises(penstock.ConnectionLostError, match="certificate for another name"):
        penstock.connect(files.uri(broker, server_name="elsewhere.example.com"), native=True)
    with penstock.connect(files.uri(broker, server_name="localhost"), native=True) as connection:
        assert connection.admin.status().version


def test_an_expired_certificate_is_not_trusted(files: Files) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    files.write("server", files.authority.issue_cert(HOST, not_after=yesterday))
    broker = Broker(files.folder / "data", "--config", files.configuration(), trust=trusting_all())

    with broker, pytest.raises(penstock.ConnectionLostError, match="uses an expired certificate"):
        penstock.connect(files.uri(broker), native=True)


def trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_the_documented_commands_make_a_certificate_that_clients_trust(tmp_path: Path, native: bool) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "configuration.md").read_text()
    commands = next(block for block in page.split("```bash\n")[1:] if "openssl" in block).split("```")[0]
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, check=True, capture_output=True)
    settings = tmp_path / "broker.toml"
    settings.write_text(f'tls_certificate = "{tmp_path}/tls.crt"\ntls_key = "{tmp_path}/tls.key"\n')
    trust = ssl.create_default_context(cafile=str(tmp_path / "ca.crt"))

    with Broker(tmp_path / "data", "--config", str(settings), trust=trust) as broker:
        uri = f"penstocks://guest:guest@localhost:{broker.grpc}/?{urlencode({'ca': tmp_path / 'ca.crt'})}"
        with penstock.connect(uri, native=native) as connection:
            assert connection.admin.status().version == penstock.__version__


def test_plaintext_is_refused_with_the_way_out(broker: Broker) -> None:
    with pytest.raises(penstock.ConnectionLostError, match="use penstocks://"):
        penstock.connect(broker.uri(), native=True, timeout=5)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_1_2_and_1_3_are_served(broker: Broker, version: ssl.TLSVersion) -> None:
    assert shown(broker, version=version)[1] == version.name.replace("_", ".")


def test_only_tls_1_3_is_served_when_that_is_the_lowest(files: Files) -> None:
    with files.broker(tls_version_min="1.3") as broker:
        assert shown(broker)[1] == "TLSv1.3"
        with pytest.raises(ssl.SSLError):
            shown(broker, version=ssl.TLSVersion.TLSv1_2)


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_client_without_a_certificate_is_refused_where_it_must_show_one(files: Files, native: bool) -> None:
    files.write("client", files.authority.issue_cert("client@example.com"))
    files.write("forged", trustme.CA().issue_cert("client@example.com"))
    own = {"cert": str(files.folder / "client.crt"), "key": str(files.folder / "client.key")}
    forged = {"cert": str(files.folder / "forged.crt"), "key": str(files.folder / "forged.key")}
    with files.broker(tls_client_ca=str(files.ca), tls_client_auth="required") as broker:
        with penstock.connect(files.uri(broker, **own), native=native) as connection:
            assert connection.admin.status().version
        for query in ({}, forged):
            with pytest.raises(penstock.ConnectionLostError):
                penstock.connect(files.uri(broker, **query), native=native, timeout=5)
        eventually(lambda: "a TLS handshake with" in broker.log, True)


def test_where_clients_must_show_a_certificate_figures_need_one_and_health_does_not(files: Files) -> None:
    files.write("client", files.authority.issue_cert("client@example.com"))
    with files.broker(tls_client_ca=str(files.ca), tls_client_auth="required") as broker:
        assert "ok" in broker.scrape("/health/live")
        with pytest.raises(urllib.error.HTTPError, match="403"):
            broker.scrape()
        trust = ssl.create_default_context(cafile=str(files.ca))
        trust.load_cert_chain(files.folder / "client.crt", files.folder / "client.key")
        figures = urllib.request.urlopen(f"{broker.health}/metrics", timeout=5, context=trust).read()
        assert b"penstock_tls_failures_total" in figures


def figures(files: Files, broker: Broker, client: str) -> int:
    """Return the status of /metrics with the client certificate `client`; 0 when the handshake fails."""
    trust = ssl.create_default_context(cafile=str(files.ca))
    trust.load_cert_chain(files.folder / f"{client}.crt", files.folder / f"{client}.key")
    try:
        with urllib.request.urlopen(f"{broker.health}/metrics", timeout=10, context=trust) as response:
            return int(response.status)
    except urllib.error.HTTPError as refused:
        return refused.code
    except OSError:
        return 0


def test_a_new_authority_of_clients_counts_without_a_restart_and_the_old_one_no_more(files: Files) -> None:
    """This holds on both ports; a removed CA is no longer trusted."""
    before, after = trustme.CA(), trustme.CA()
    authorities = files.folder / "clients.pem"
    for name, authority in (("before", before), ("after", after)):
        files.write(name, authority.issue_cert("client@example.com"))
    before.cert_pem.write_to_path(str(authorities))
    with files.broker(tls_client_ca=str(authorities), tls_client_auth="required") as broker:
        assert (figures(files, broker, "before"), figures(files, broker, "after")) == (200, 0)
        (files.folder / "clients.pem").write_text("no authority")
        eventually(lambda: "changed TLS files cannot be used" in broker.log, True, 60)
        assert figures(files, broker, "before") == 200

        after.cert_pem.write_to_path(str(authorities))
        eventually(lambda: figures(files, broker, "after"), 200, 60)

        assert figures(files, broker, "before") == 0
        shown = {"cert": str(files.folder / "after.crt"), "key": str(files.folder / "after.key")}
        with penstock.connect(files.uri(broker, **shown)) as connection:
            assert connection.admin.status().version
        gone = {"cert": str(files.folder / "before.crt"), "key": str(files.folder / "before.key")}
        with pytest.raises(penstock.ConnectionLostError):
            penstock.connect(files.uri(broker, **gone), timeout=5)


def test_a_new_certificate_is_served_without_a_restart_and_a_bad_one_is_not(files: Files, broker: Broker) -> None:
    with penstock.connect(files.uri(broker)) as connection:
        before, _ = shown(broker)
        (files.folder / "server.crt").write_text("half a certifi")
        eventually(lambda: "changed TLS files cannot be used" in broker.log, True)
        assert shown(broker)[0] == before

        files.write("server", files.authority.issue_cert(HOST))
        eventually(lambda: shown(broker)[0] != before, True)

        assert connection.admin.status().version, "connections that were there stay"


def test_a_host_asked_for_by_name_shows_its_own_certificate(files: Files) -> None:
    names = files.folder / "names"
    names.mkdir()
    files.write("names/a.example.com", files.authority.issue_cert("a.example.com"))
    files.write("names/*.example.com", files.authority.issue_cert("*.example.com"))
    with files.broker(tls_names_dir=str(names)) as broker:
        unnamed, _ = shown(broker)
        exact, _ = shown(broker, "a.example.com")
        wildcard, _ = shown(broker, "b.example.com")

        assert len({unnamed, exact, wildcard}) == 3
        assert shown(broker, "elsewhere.org")[0] == unnamed


def test_a_key_of_another_certificate_stops_the_start(files: Files) -> None:
    files.authority.issue_cert(HOST).private_key_pem.write_to_path(str(files.folder / "server.key"))

    with pytest.raises(BrokerError, match="TLS cannot be started: the certificate"):
        files.broker().start()


def test_a_client_that_never_shakes_hands_delays_nobody(files: Files, broker: Broker) -> None:
    silent = [socket.create_connection((HOST, broker.grpc)) for _ in range(200)]
    try:
        with penstock.connect(files.uri(broker), timeout=5) as connection:
            assert connection.admin.status().version
    finally:
        for each in silent:
            each.close()


def test_a_certificate_says_who_its_client_is(files: Files) -> None:
    files.write("client", files.authority.issue_cert("anna@example.com", common_name="anna"))
    shown = {"cert": str(files.folder / "client.crt"), "key": str(files.folder / "client.key")}
    settings = {"tls_client_ca": str(files.ca), "tls_client_auth": "optional", "tls_client_user": "cn"}
    with files.broker(**settings) as broker:
        nameless = f"penstocks://{broker.address}/?{urlencode({'ca': str(files.ca), **shown})}"
        with pytest.raises(penstock.NotAuthenticatedError, match="anna"):
            penstock.connect(nameless)
        with penstock.connect(files.uri(broker)) as root:
            root.admin.put_user("anna", "another way in")
            root.admin.set_permission("anna", "/", ".*", "", "")
        for native in (True, False):
            with penstock.connect(nameless, native=native) as connection:
                connection.declare_queue("annas")
                with pytest.raises(penstock.AccessRefusedError):
                    connection.get("annas")
        with pytest.raises(penstock.NotAuthenticatedError):
            penstock.connect(f"penstocks://anna:wrong@{broker.address}/?{urlencode({'ca': str(files.ca), **shown})}")
