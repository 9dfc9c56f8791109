"""What a log-in over AMQP stands for."""

import pytest

from penstock.frontends.amqp.credentials import credentials_of, user_of
from penstock.services import Certificate, Credentials, NoCredentials, Password


@pytest.mark.parametrize(
    ("authorization", "certificate", "wanted"),
    [
        ("anna\0secret", b"", Password("anna", "secret")),
        ("anna\0", b"", Password("anna", "")),
        ("anna\0secret", b"der", Password("anna", "secret")),
        ("", b"der", Certificate(b"der")),
    ],
)
def test_a_log_in_has_credentials(authorization: str, certificate: bytes, wanted: Credentials) -> None:
    assert credentials_of(authorization, certificate) == wanted


@pytest.mark.parametrize(("authorization", "certificate"), [("", b""), ("anna", b"der"), ("\0", b"der"), ("\0x", b"")])
def test_what_names_nobody_is_refused(authorization: str, certificate: bytes) -> None:
    assert isinstance(credentials_of(authorization, certificate), NoCredentials)


def test_the_name_is_what_stands_before_the_password() -> None:
    assert (user_of("anna\0secret"), user_of("")) == ("anna", "")
