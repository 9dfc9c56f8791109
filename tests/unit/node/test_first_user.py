"""The first user of a new broker: default credentials work on loopback only."""

import pytest

from penstock.node.config import load_settings
from penstock.node.first_user import choose_first_user, is_beyond_loopback


def chosen(tmp_path, **flags):
    return choose_first_user(load_settings(flags=flags, environment={}), tmp_path / "users.json")


@pytest.mark.parametrize(
    ("grpc", "is_beyond"),
    [
        ("127.0.0.1:1", False),
        ("[::1]:1", False),
        ("localhost:1", False),
        ("off", False),
        ("0.0.0.0:1", True),
        ("[::]:1", True),
        ("10.0.0.1:1", True),
        ("broker.example:1", True),
    ],
)
def test_an_address_is_beyond_loopback_unless_it_is_surely_not(grpc, is_beyond):
    assert is_beyond_loopback(load_settings(flags={"grpc": grpc}, environment={})) is is_beyond


def test_a_new_broker_that_others_reach_has_an_administrator_with_a_password_of_its_own(tmp_path):
    first = chosen(tmp_path, grpc="0.0.0.0:1")

    assert first.name == "admin"
    assert len(first.password) >= 32
    assert first.password_file.read_text() == first.password + "\n"
    assert first.password_file.stat().st_mode & 0o077 == 0
    assert chosen(tmp_path, grpc="0.0.0.0:1").password != first.password


@pytest.mark.parametrize(
    "flags",
    [{"grpc": "127.0.0.1:1"}, {"grpc": "0.0.0.0:1", "default_password": "mine"}, {"default_user": "root"}],
)
def test_whoever_was_named_is_the_first(tmp_path, flags):
    first = chosen(tmp_path, **flags)

    assert (first.name, first.password) == (flags.get("default_user", "guest"), flags.get("default_password", "guest"))
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_has_users_makes_nothing_up(tmp_path):
    (tmp_path / "users.json").write_text("[]")

    assert chosen(tmp_path, grpc="0.0.0.0:1").password_file is None
