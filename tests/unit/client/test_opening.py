"""Opening: the choice of transport, and a first call that reports a wrong address or password at once."""

import subprocess
import sys

import pytest

import penstock
from penstock.client.opening import Options, greet
from penstock.client.transport import StatusError
from support.fake_transport import FakeBroker, FakeTransport

OPTIONS = Options.read("penstock://walter:wrong@example.org:1/", None, None, 5.0)


def greeted(code: int, text: str = "what the broker said", options: Options = OPTIONS) -> None:
    transport = FakeTransport(FakeBroker())
    transport.broker.refusal = StatusError(code, text, b"")
    greet(transport, options)


def test_an_unreachable_broker_is_told_by_its_address() -> None:
    with pytest.raises(penstock.ConnectionLostError, match=r"no broker answers at example\.org:1"):
        greeted(14)


def test_an_unreachable_broker_is_told_by_all_its_addresses() -> None:
    options = Options.read("penstock://walter:wrong@a:1,b:2/", None, None, 5.0)

    with pytest.raises(penstock.ConnectionLostError, match="no broker answers at a:1, b:2: ") as caught:
        greeted(14, options=options)

    assert "wrong" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("invalid peer certificate: UnknownIssuer", "is not trusted; name its CA with ?ca=FILE"),
        ("Ssl handshake failed: CERTIFICATE_VERIFY_FAILED: self-signed certificate", "is not trusted"),
        ("invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "uses a CA certificate (CA:TRUE)"),
        ("invalid peer certificate: certificate not valid for name: NotValidForName", "for another name"),
        ("Custom verification check failed with error: Hostname Verification Check failed.", "for another name"),
        ("received corrupt message of type InvalidContentType", "does not serve TLS; use penstock://"),
        ("SSL_ERROR_SSL: error:100000f7:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER", "does not serve TLS"),
        ("received fatal alert: CertificateRequired", "requires a client certificate"),
    ],
)
def test_a_handshake_that_fails_says_what_to_do_and_not_that_no_broker_answers(text: str, told: str) -> None:
    options = Options.read("penstocks://walter:wrong@example.org:1/", None, None, 5.0)

    with pytest.raises(penstock.ConnectionLostError) as caught:
        greeted(14, text, options)

    assert told in str(caught.value)
    assert text in str(caught.value)
    assert "no broker answers" not in str(caught.value)


@pytest.mark.parametrize("text", ["frame with invalid size", "ipv4:127.0.0.1:1: Socket closed"])
def test_a_broker_that_ends_a_plaintext_connection_answers(text: str) -> None:
    with pytest.raises(penstock.ConnectionLostError, match="if it serves TLS, use penstocks://"):
        greeted(14, text)


def test_a_wrong_password_is_told_at_once() -> None:
    with pytest.raises(penstock.NotAuthenticatedError, match="what the broker said"):
        greeted(16)


def test_a_user_without_permissions_in_the_vhost_may_connect() -> None:
    greeted(7)


def test_opening_asks_one_question_about_one_vhost() -> None:
    """It listed all vhosts, and the broker counted the messages of every queue in them."""
    transport = FakeTransport(FakeBroker())

    greet(transport, OPTIONS)

    assert [name for name, _ in transport.broker.calls] == ["GetVhostLimits"]


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="'os', 'disk', 'replicated' or None"):
        Options.read("penstock://h", None, "memory", 5.0)


def test_a_timeout_must_be_a_time() -> None:
    with pytest.raises(ValueError, match="timeout is 0"):
        Options.read("penstock://h", None, None, 0)


def test_the_package_imports_neither_grpc_nor_protobuf_before_it_is_used() -> None:
    program = (
        "import sys, penstock, penstock.cli.main\n"
        "heavy = {'grpc', 'google.protobuf', 'penstock.client', 'penstock.node', 'aiohttp', 'uvloop'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_name_the_package_offers_is_there() -> None:
    assert all(getattr(penstock, name) is not None for name in penstock.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        penstock.nothing  # noqa: B018
