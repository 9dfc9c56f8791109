"""From the metadata of a call to credentials: which of several counts, and which headers are the same."""

import base64

import pytest

from penstock.frontends.grpc.credentials import credentials_of
from penstock.services import Certificate, Password, Token
from penstock.services.principal import digest_of

BASIC = "Basic " + base64.b64encode(b"anna:secret").decode()


@pytest.mark.parametrize(
    ("authorization", "certificate", "credentials"),
    [
        (BASIC, b"", Password("anna", "secret")),
        (BASIC, b"DER", Password("anna", "secret")),
        ("Bearer a.b.c", b"", Token("a.b.c")),
        ("Bearer a.b.c", b"DER", Token("a.b.c")),
        ("", b"DER", Certificate(b"DER")),
    ],
)
def test_what_a_client_sends_counts_before_the_certificate_of_its_connection(authorization, certificate, credentials):
    assert credentials_of(authorization, certificate) == credentials


@pytest.mark.parametrize("header", ["bearer   token ", "Bearer" + " " * 20_000 + "token", "BEARER token"])
def test_the_same_token_with_other_spaces_is_the_same_credentials(header):
    assert digest_of(credentials_of(header)) == digest_of(Token("token"))


def test_no_credentials_show_their_secret():
    assert "secret" not in repr([credentials_of(BASIC), Token("secret"), Certificate(b"secret")])
