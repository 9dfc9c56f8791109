"""Parsing of connection Secrets, which lead to brokers that the operator does not run. Tenants write them."""

import base64

import pytest

from penstock_operator.desired.accounts import Refused
from penstock_operator.desired.connection import PEM_BYTES_MAX, Connection, read_connection
from penstock_operator.desired.naming import Endpoint

PEM = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
ACCOUNT = {"username": "operator", "password": "s3cret"}


def read(**data: str) -> Connection | Refused:
    keys = {"ca": "ca.crt", "crt": "tls.crt", "key": "tls.key"}
    encoded = {keys.get(key, key): base64.b64encode(value.encode()).decode() for key, value in data.items()}
    return read_connection("warehouse", encoded)


def refused(**data: str) -> Refused:
    found = read(**data)
    assert isinstance(found, Refused)
    assert found.message.startswith("the Secret 'warehouse' ")
    assert "s3cret" not in found.message
    return found


@pytest.mark.parametrize(
    ("uri", "endpoint"),
    [
        ("penstock://mq.shop.svc:5681", Endpoint("mq.shop.svc", 5681)),
        ("penstock://mq.shop.svc", Endpoint("mq.shop.svc", 5680)),
        ("penstocks://mq.example.com/", Endpoint("mq.example.com", 5680, has_tls=True)),
        ("penstock://10.1.2.3:1", Endpoint("10.1.2.3", 1)),
        ("penstock://[fd00::1]:5680", Endpoint("fd00::1", 5680)),
    ],
)
def test_an_address_is_a_scheme_a_host_and_a_port(uri: str, endpoint: Endpoint) -> None:
    assert read(uri=uri, **ACCOUNT) == Connection(endpoint, "operator", "s3cret")


def test_the_account_may_be_in_the_uri_and_the_keys_count_first() -> None:
    uri = "penstock://some%20one:s3cret@mq.shop.svc/"

    assert read(uri=uri) == Connection(Endpoint("mq.shop.svc"), "some one", "s3cret")
    assert read(uri=uri, password="other") == Connection(Endpoint("mq.shop.svc"), "some one", "other")


def test_certificates_are_taken_with_tls() -> None:
    found = read(uri="penstocks://mq.example.com", **ACCOUNT, ca=PEM, crt=PEM, key=PEM)

    assert isinstance(found, Connection)
    assert (found.authority, found.shown) == (PEM, (PEM, PEM))


@pytest.mark.parametrize(
    "uri",
    [
        "http://mq.shop.svc:80/",
        "file:///etc/passwd",
        "unix:///run/some.sock",
        "mq.shop.svc:5680",
        "penstock://",
        "penstock://mq",
        "penstock://unix:5680",
        "penstock://localhost:5680",
        "penstock://mq.shop.svc:0",
        "penstock://mq.shop.svc:99999",
        "penstock://mq.shop.svc,db.shop.svc",
        "penstock://mq.shop.svc/other",
        "penstock://mq.shop.svc/#x",
        "penstock://mq.shop.svc/\nx",
        "penstocks://mq.shop.svc/?ca=/var/run/secrets/kubernetes.io/serviceaccount/token",
        "penstocks://mq.shop.svc/?server_name=other",
        "penstock://127.0.0.1:8080",
        "penstock://127.1:8080",
        "penstock://2130706433.0x1",
        "penstock://0.0.0.0",
        "penstock://169.254.169.254:80",
        "penstock://[::1]:5680",
        "penstock://[::ffff:127.0.0.1]:5680",
        "penstock://[fe80::1]:5680",
        "penstock://224.0.0.1",
        "penstock://mq.localhost",
        "penstock://localhost.localdomain",
        "penstock://[::127.0.0.1]",
        "penstock://[64:ff9b::169.254.169.254]:80",
        "penstock://[2002:7f00:1::]",
        f"penstock://{'a' * 64}.{'b.' * 100}svc",
        f"penstock://{'a.' * 2_000}svc",
    ],
)
def test_an_address_that_names_anything_else_is_refused(uri: str) -> None:
    assert refused(uri=uri, **ACCOUNT).reason == "SecretInvalid"


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (ACCOUNT, "uri"),
        ({"uri": "penstock://mq.shop.svc", "password": "s3cret"}, "username"),
        ({"uri": "penstock://mq.shop.svc", "username": "operator"}, "password"),
        ({"uri": "penstocks://mq.shop.svc", **ACCOUNT, "crt": PEM}, "tls.key"),
    ],
)
def test_a_missing_key_is_named(data: dict[str, str], key: str) -> None:
    found = refused(**data)

    assert found.reason == "SecretIncomplete"
    assert key in found.message


@pytest.mark.parametrize(
    "data",
    [
        {"uri": "penstock://mq.shop.svc", "ca": PEM},
        {"uri": "penstocks://mq.shop.svc", "ca": "/etc/ssl/ca.pem"},
        {"uri": "penstocks://mq.shop.svc", "ca": PEM + "A" * PEM_BYTES_MAX},
        {"uri": "penstock://mq.shop.svc", "username": "a:b"},
    ],
    ids=["without TLS", "no PEM", "too large", "colon"],
)
def test_other_values_that_cannot_be_used_are_refused(data: dict[str, str]) -> None:
    assert refused(**{**ACCOUNT, **data}).reason == "SecretInvalid"


def test_bytes_that_are_no_text_are_refused() -> None:
    found = read_connection("warehouse", {"uri": base64.b64encode(b"\xff\xfe").decode()})

    assert isinstance(found, Refused)
    assert found.reason == "SecretInvalid"


def test_a_connection_prints_no_password() -> None:
    found = read(uri="penstocks://mq.example.com", **ACCOUNT, crt=PEM, key=PEM)

    assert "s3cret" not in repr(found)
    assert "BEGIN" not in repr(found)
