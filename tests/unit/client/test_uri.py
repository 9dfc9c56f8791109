"""URIs: defaults, and errors."""

import traceback
from pathlib import Path

import pytest

from penstock.client.errors import InvalidUriError
from penstock.client.uri import Address, Tls, format_uri, parse_uri


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("penstock://u:p@h:1/v", Address("h", 1, "u", "p", "v")),
        ("penstock://h", Address("h")),
        ("penstock://h/", Address("h")),
        ("penstock://h/%2F", Address("h")),
        ("penstock://h/a%2Fb", Address("h", vhost="a/b")),
        ("penstock://u@h", Address("h", user="u")),
        ("penstock://u:@h", Address("h", user="u", password="")),
        ("penstock://u:p%40ss@h", Address("h", user="u", password="p@ss")),
        ("penstock://[::1]:7/", Address("::1", 7)),
        ("penstocks://h", Address("h", tls=Tls())),
        ("penstock://u:p@h:1,i,[::1]:7/v", Address("h", 1, "u", "p", "v", others=(("i", 5680), ("::1", 7)))),
        ("penstock://u:a,b%2C@h,i", Address("h", user="u", password="a,b,", others=(("i", 5680),))),
        ("penstocks://h,i:1/?server_name=n", Address("h", tls=Tls(server_name="n"), others=(("i", 1),))),
        (
            "penstocks://h/v?ca=%2Fa%20b.pem&server_name=n",
            Address("h", vhost="v", tls=Tls("/a b.pem", server_name="n")),
        ),
    ],
)
def test_what_is_left_out_has_a_default(uri: str, address: Address) -> None:
    assert parse_uri(uri) == address


@pytest.mark.parametrize("tls", [None, Tls("/ca.pem")])
def test_a_client_follows_hints_unless_its_uri_says_no(tls: Tls | None) -> None:
    scheme, ca = ("penstocks", "&ca=/ca.pem") if tls else ("penstock", "")
    staying = Address("h", tls=tls, others=(("i", 1),), follows=False)

    assert parse_uri(f"{scheme}://h,i:1/?follow=false{ca}") == staying
    assert parse_uri(format_uri(staying)) == staying
    assert parse_uri(f"{scheme}://h/?follow=true{ca}") == Address("h", tls=tls)


def test_an_address_with_tls_is_written_as_it_is_read() -> None:
    address = Address("h", tls=Tls("/ca file.pem", "/c?.pem", "/k&.pem", "n"))

    assert parse_uri(format_uri(address)) == address


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("amqp://h", "must start with penstock://"),
        ("h:5680", "must start with penstock://"),
        ("penstocks://h/?crt=x", "has 'crt'; it takes ca, cert, follow, key, server_name"),
        ("penstocks://h/?cert=x", "set both"),
        ("penstock://", "has no host"),
        ("penstock://h:0", "from 1 to 65535"),
        ("penstock://h,", "has no host"),
        ("penstock://h,,i", "has no host"),
        ("penstock://h,i:0", "from 1 to 65535"),
        ("penstock://" + ",".join("h" * 17), "more than 16 hosts"),
        ("penstock://h:x", "from 1 to 65535"),
        ("penstock://h/a/b", "percent-encode it as %2F"),
        ("penstock://h/?x=1", "query"),
        ("penstock://h/?follow=no", "'follow' with another value"),
        ("penstock://h/?follow=false&x=1", "query"),
        ("penstocks://h/?follow=1", "'follow' with another value"),
        ("penstock://u:100%@h", "'%'"),
        ("penstock://%3A:p@h", "user contains ':'"),
        ("penstock://h/%ff", "not UTF-8"),
        ("penstock://h/a b", "space"),
        ("penstock://h/" + "v" * 256, "255 bytes"),
    ],
)
def test_a_wrong_uri_is_refused_with_the_way_out(uri: str, words: str) -> None:
    with pytest.raises(InvalidUriError) as refused:
        parse_uri(uri)

    assert words in str(refused.value)


@pytest.mark.parametrize(
    "uri",
    [
        "penstock://u:s3cr/et@h/",
        "penstock://u:s3cret@h/a/b",
        "penstock://u:s3cret@h:x/",
        "penstok://u:s3cret@h/",
        "penstock://u:s3cret@h/?color=red",
        "penstock://u:1?follow=s3cret@h/",
        "penstock://u:s3cret@h/?follow=s3cret",
        "penstock://u:s3cret@/",
        "penstock://u:s3cret[@h/",
        "penstock://u:[s3cret]@h/",
        "penstock://u:s3cret\u2100@h/",
        "penstocks://u:x?s3cret@h/",
        "penstocks://u:1?s3cret@h/",
        "penstock://u:1/s3cret@h",
        "penstock://u:1#s3cret@h",
        "penstock://u:%s3cret@h",
        "penstock://u:s3cret%ff@h",
        "penstock://u:s3cret @h",
        "penstock://u:s3cret@h,i:x/",
        "penstock://u:s3cret,x/y@h,i",
        "penstock://u:1,s3cret/@h",
        "penstock://u:p@h,s3cret@i:1:2",
    ],
)
def test_an_error_never_tells_the_password(uri: str) -> None:
    """Spark prints the causes of an error too."""
    with pytest.raises(InvalidUriError) as refused:
        parse_uri(uri)

    assert "s3cr" not in "".join(traceback.format_exception(refused.value)).replace(repr(uri), "").replace(uri, "")


def test_an_address_never_shows_its_password() -> None:
    assert "s3cret" not in repr(Address(password="s3cret"))


def test_credentials_are_basic_and_utf8() -> None:
    assert Address(user="ü", password="p").authorization == "Basic w7w6cA=="


def test_a_token_is_the_password_of_an_empty_user() -> None:
    address = parse_uri("penstock://:to%2Fken@h/")

    assert address.authorization == "Bearer to/ken"
    assert parse_uri(format_uri(address)) == address
    beside_certificate = parse_uri("penstocks://:token@h/?cert=a.pem&key=b.pem")
    assert parse_uri(format_uri(beside_certificate)) == beside_certificate
    assert Address(user="", password="").authorization == ""


def test_an_ipv6_target_has_brackets() -> None:
    assert Address("::1", 7).target == "[::1]:7"
    assert Address("h", others=(("::1", 7),)).targets == ("h:5680", "[::1]:7")


def test_a_file_of_a_uri_that_cannot_be_read_is_refused_in_words(tmp_path: Path) -> None:
    missing = parse_uri(f"penstocks://localhost/?ca={tmp_path}/none.pem").tls
    assert missing is not None

    with pytest.raises(InvalidUriError) as refused:
        missing.texts()

    assert str(refused.value) == f"the URI's ca file '{tmp_path}/none.pem' cannot be read: no such file or directory"
