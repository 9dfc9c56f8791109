"""Credentials as anybody may send them: whatever the header holds, it names a user or is refused."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frontends.grpc.caller import credentials_of
from penstock.model.errors import NotAuthenticatedError


@given(
    st.text()
    | st.text().map("Basic {}".format)
    | st.binary().map(lambda raw: "Basic " + base64.b64encode(raw).decode())
)
def test_a_header_names_a_user_or_is_refused(header: str) -> None:
    try:
        name, _ = credentials_of(header)
    except NotAuthenticatedError:
        return
    assert name
    assert ":" not in name


@given(st.text(min_size=1).filter(lambda name: ":" not in name), st.text())
def test_a_name_and_a_password_come_out_as_they_went_in(name: str, password: str) -> None:
    try:
        raw = f"{name}:{password}".encode()
    except UnicodeEncodeError:
        return  # half a character, which no client can send as UTF-8

    assert credentials_of("basic " + base64.b64encode(raw).decode()) == (name, password)


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Basic Og==", "Bearer a.b.c", "basic " + "A" * 100_001])
def test_what_is_no_credential_is_refused(header: str) -> None:
    with pytest.raises(NotAuthenticatedError):
        credentials_of(header)
