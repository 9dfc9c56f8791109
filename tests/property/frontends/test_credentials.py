"""Arbitrary credentials: a header names a user and a password or a token, or it is no credentials."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontends.grpc.credentials import credentials_of
from penstock.services import NoCredentials, Password, Token


@given(
    st.text()
    | st.text().map("Basic {}".format)
    | st.binary().map(lambda raw: "Basic " + base64.b64encode(raw).decode())
)
def test_a_header_names_a_user_or_is_no_credentials(header: str) -> None:
    credentials = credentials_of(header)

    if isinstance(credentials, Password):
        assert credentials.user
        assert ":" not in credentials.user
    else:
        assert isinstance(credentials, Token | NoCredentials)


@given(st.text(min_size=1).filter(lambda name: ":" not in name), st.text())
def test_a_name_and_a_password_come_out_as_they_went_in(name: str, password: str) -> None:
    try:
        raw = f"{name}:{password}".encode()
    except UnicodeEncodeError:
        return  # half a character, which no client can send as UTF-8

    assert credentials_of("basic " + base64.b64encode(raw).decode()) == Password(name, password)


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Basic Og==", "basic " + "A" * 100_001, "Digest x"])
def test_what_is_no_credential_is_refused(header: str) -> None:
    assert isinstance(credentials_of(header), NoCredentials)
