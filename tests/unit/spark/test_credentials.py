"""Credentials beside `uri`: how they are merged, which contradict each other, and that no error shows one."""

import traceback
from pathlib import Path

import pytest

from penstock.client.uri import Address, parse_uri
from penstock.spark.errors import OptionError
from penstock.spark.options import parse_read_options, parse_write_options
from penstock.spark.queue_options import parse_queue_options

SECRET = "s3cret"
BARE = "penstock://broker/v"


def address(options: dict[str, str]) -> Address:
    return parse_uri(parse_read_options({"stream": "events", **options}).uri)


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(f"{SECRET}/%\r\nnot this\n")
    return str(path)


def test_a_user_and_a_password_are_given_beside_the_uri(file: str) -> None:
    there = Address("broker", user="loader", password=f"{SECRET}/%", vhost="v")

    assert address({"uri": BARE, "user": "loader", "password": f"{SECRET}/%"}) == there
    assert address({"uri": "penstock://loader@broker/v", "password": f"{SECRET}/%"}) == there
    assert address({"uri": BARE, "user": "loader", "passwordFile": file}) == there
    assert address({"uri": BARE, "token": SECRET}).authorization == f"Bearer {SECRET}"


def test_a_broker_with_several_addresses_has_the_same_credentials_at_all() -> None:
    found = address({"uri": "penstock://loader@broker:1,[::1]:2/v", "password": SECRET})

    assert found == Address("broker", 1, "loader", SECRET, "v", others=(("::1", 2),))


def test_they_replace_the_credentials_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URI", "penstock://a:b@broker/v")

    assert address({}) == Address("broker", user="a", password="b", vhost="v")
    assert address({"user": "c", "password": "d"}) == Address("broker", user="c", password="d", vhost="v")


def test_writes_and_queues_take_them_too() -> None:
    options = {"uri": BARE, "user": "loader", "password": SECRET}
    write = parse_write_options({"stream": "a", **options})
    queue = parse_queue_options({"queue": "a", "owner": "o", **options})

    assert write.uri == queue.rows.uri == f"penstock://loader:{SECRET}@broker:5680/v"
    assert SECRET not in repr(write) + repr(queue)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"uri": BARE, "user": "a", "password": SECRET, "token": SECRET}, "only one of 'password' and 'token'"),
        ({"uri": BARE, "user": "a", "password": SECRET, "passwordFile": "FILE"}, "'password' and 'passwordFile'"),
        ({"uri": BARE, "user": "a"}, "'user' needs a password"),
        ({"uri": BARE, "user": "a", "token": SECRET}, "leave 'user' out"),
        ({"uri": f"penstock://a:{SECRET}@broker", "password": SECRET}, "both 'uri' and 'password'"),
        ({"uri": f"penstock://:{SECRET}@broker", "token": SECRET}, "both 'uri' and 'token'"),
        ({"uri": "penstock://a@broker", "user": "b", "password": SECRET}, "name a user"),
        ({"uri": "penstock://a@broker", "token": SECRET}, "name a user"),
        ({"uri": "penstocks://broker/?cert=a&key=b", "password": SECRET}, "a password needs a user"),
        ({"uri": BARE, "user": "a:b", "passwordFile": "FILE"}, "option 'user': it must not contain ':'"),
        ({"uri": BARE, "user": f"a:{SECRET}"}, "put a password into 'password' or 'passwordFile'"),
        ({"uri": BARE, "user": "a", "passwordFile": "/gone"}, "the file cannot be read"),
        ({"uri": BARE, "user": "a", "password": ""}, "option 'password': it must not be empty"),
        ({"uri": f"penstock://a:{SECRET}@broker:568o/"}, "option 'uri': the URI's port"),
        ({"uri": f"penstok://a:{SECRET}@broker/"}, "option 'uri': the URI must start"),
        ({"uri": f"penstock://a:[{SECRET}]@broker/"}, "option 'uri': the URI's host"),
        ({"uri": f"penstock://a:1/{SECRET}@broker/"}, "option 'uri'"),
        ({"uri": f"penstock://a:{SECRET}@broker,other:568o/"}, "option 'uri': the URI's port"),
        ({"uri": f"penstock://a:1,{SECRET}/@broker,other"}, "option 'uri': the URI's vhost"),
        ({"uri": f"penstock://a:{SECRET}@broker,[::1]:7/", "password": SECRET}, "both 'uri' and 'password'"),
    ],
)
def test_contradictions_and_mistakes_are_refused_without_a_secret(
    options: dict[str, str], words: str, file: str
) -> None:
    options = {name: file if value == "FILE" else value for name, value in options.items()}

    with pytest.raises(OptionError) as refused:
        address(options)

    assert words in str(refused.value)
    assert SECRET not in told(refused.value)


def test_a_malformed_uri_of_the_environment_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_URI", f"penstock://a:{SECRET}@broker:568o/")

    with pytest.raises(OptionError, match="the environment variable PENSTOCK_URI is invalid") as refused:
        address({})

    assert SECRET not in told(refused.value)


def test_a_file_with_an_empty_first_line_has_no_password(tmp_path: Path) -> None:
    (tmp_path / "empty").write_bytes(b"\n")

    with pytest.raises(OptionError, match="its first line must be a password in UTF-8"):
        address({"uri": BARE, "user": "a", "passwordFile": str(tmp_path / "empty")})


def told(error: BaseException) -> str:
    """Return what Spark prints: the error and its causes."""
    return "".join(traceback.format_exception(error))
