"""users.json and vhosts.json: content reads back, and errors are named."""

import json

import pytest

from penstock.model.errors import StorageError
from penstock.storage import (
    PermissionRecord,
    TopicRecord,
    UserRecord,
    read_users,
    read_vhosts,
    write_users,
    write_vhosts,
)

ALL = PermissionRecord(".*", "^a$", "")


def test_users_come_back_in_their_order(tmp_path):
    users = [UserRecord("z", "h", "argon2id", ("administrator",), {"/": ALL}), UserRecord("a", "", "argon2id")]

    write_users(tmp_path / "users.json", users)

    assert read_users(tmp_path / "users.json") == users


def test_the_file_is_as_documented(tmp_path):
    write_users(tmp_path / "users.json", [UserRecord("a", "h", "argon2id", ("monitoring",), {"/": ALL})])

    assert json.loads((tmp_path / "users.json").read_text()) == [
        {
            "name": "a",
            "password_hash": "h",
            "hashing_algorithm": "argon2id",
            "tags": ["monitoring"],
            "permissions": {"/": {"configure": ".*", "write": "^a$", "read": ""}},
        }
    ]


def test_topic_permissions_are_written_when_there_are_any_and_come_back(tmp_path):
    users = [UserRecord("a", "", "argon2id", (), {}, {"/": {"logs": TopicRecord("a\\..*", "")}})]

    write_users(tmp_path / "users.json", users)

    assert json.loads((tmp_path / "users.json").read_text())[0]["topic_permissions"] == {
        "/": {"logs": {"write": "a\\..*", "read": ""}}
    }
    assert read_users(tmp_path / "users.json") == users


def test_the_form_of_lavinmq_is_read(tmp_path):
    path = tmp_path / "users.json"
    path.write_text(
        '[{"name": "a", "tags": "administrator, monitoring",'
        ' "permissions": {"/": {"config": "c", "read": "r", "write": "w"}}}]'
    )

    assert read_users(path) == [
        UserRecord("a", "", "argon2id", ("administrator", "monitoring"), {"/": PermissionRecord("c", "w", "r")})
    ]


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("{}", "must hold a list"),
        ("[1]", r"\[0\]"),
        ('[{"name": 1}]', r"\[0\]\.name"),
        ('[{"name": "a", "tags": [1]}]', r"\[0\]\.tags"),
        ('[{"name": "a", "pasword": "x"}]', r"\[0\]\.pasword"),
        ('[{"name": "a", "permissions": {"/": {"configure": "", "write": ""}}}]', r"permissions\['/'\]\.read"),
        ('[{"name": "a", "topic_permissions": {"/": {"x": {"write": ""}}}}]', r"topic_permissions\['/'\]\['x'\]\.read"),
        ('[{"name": "a", "topic_permissions": {"/": []}}]', r"topic_permissions\['/'\]"),
        ('[{"name": "a"}, {"name": "a"}]', "twice"),
    ],
)
def test_what_is_wrong_in_users_json_is_named(tmp_path, content, place):
    path = tmp_path / "users.json"
    path.write_text(content)

    with pytest.raises(StorageError, match=place):
        read_users(path)


def test_vhosts_come_back_in_their_order(tmp_path):
    write_vhosts(tmp_path / "vhosts.json", ["/", "b", "a"])

    assert read_vhosts(tmp_path / "vhosts.json") == ["/", "b", "a"]


def test_a_vhost_in_a_foreign_directory_is_refused(tmp_path):
    (tmp_path / "vhosts.json").write_text('[{"name": "/", "dir": "../elsewhere"}]')

    with pytest.raises(StorageError, match="SHA-1"):
        read_vhosts(tmp_path / "vhosts.json")


def test_a_missing_file_is_none(tmp_path):
    assert read_users(tmp_path / "users.json") is None
    assert read_vhosts(tmp_path / "vhosts.json") is None
