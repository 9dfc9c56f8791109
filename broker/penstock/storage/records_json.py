"""`users.json` and `vhosts.json` as records, checked field by field; an error names the place.

`tags` is a list of names and a permission has the keys configure, write and read; LavinMQ's `"a,b"` and `config` are
read as well and written back in our form. This module does not know the meaning of tags and patterns.

The checks are written by hand, without pydantic. An error names the file, the path in it, the rule and the remedy, an
unknown key with the known ones; pydantic's errors would have to be translated to that, with more code than the checks.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from penstock.model.errors import StorageError, Thing
from penstock.storage.directory import directory_name
from penstock.storage.jsonfiles import json_content, read_json, write_file

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PermissionRecord:
    configure: str
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class TopicRecord:
    write: str
    read: str


@dataclass(frozen=True, slots=True)
class UserRecord:
    name: str
    password_hash: str
    hashing_algorithm: str
    tags: tuple[str, ...] = ()
    permissions: dict[str, PermissionRecord] = field(default_factory=dict)
    topics: dict[str, dict[str, TopicRecord]] = field(default_factory=dict)


def read_users(path: Path) -> list[UserRecord] | None:
    """Return the users; None when there is no such file yet."""
    items = _read_list(path)
    if items is None:
        return None
    users = [_user(Place(path, f"[{index}]", item)) for index, item in enumerate(items)]
    _check_unique(path, [user.name for user in users])
    return users


def within_vhosts(user: UserRecord, vhosts: Container[str]) -> UserRecord:
    """Return a user with its permissions in these vhosts alone."""
    permissions = {name: held for name, held in user.permissions.items() if name in vhosts}
    topics = {name: held for name, held in user.topics.items() if name in vhosts}
    return replace(user, permissions=permissions, topics=topics)


def write_users(path: Path, users: list[UserRecord]) -> None:
    write_file(path, users_content(users))


def users_content(users: Iterable[UserRecord]) -> bytes:
    """Return the content of `users.json`."""
    return json_content([_object_of(user) for user in users])


def _object_of(user: UserRecord) -> dict[str, object]:
    content: dict[str, object] = {
        "name": user.name,
        "password_hash": user.password_hash,
        "hashing_algorithm": user.hashing_algorithm,
        "tags": list(user.tags),
        "permissions": {
            vhost: {"configure": permission.configure, "write": permission.write, "read": permission.read}
            for vhost, permission in user.permissions.items()
        },
    }
    if user.topics:  # most users have none, and an earlier broker reads a file without them
        content["topic_permissions"] = {
            vhost: {exchange: {"write": topic.write, "read": topic.read} for exchange, topic in topics.items()}
            for vhost, topics in user.topics.items()
        }
    return content


def read_vhosts(path: Path) -> list[str] | None:
    """Return names in the file's order; None when there is no such file yet."""
    items = _read_list(path)
    if items is None:
        return None
    names: list[str] = []
    for index, item in enumerate(items):
        place = Place(path, f"[{index}]", item)
        names.append(place.text("name"))
        if place.text("dir") != directory_name(names[-1]):
            raise place.wrong("dir", f"must be {directory_name(names[-1])!r}, the SHA-1 of the name")
    _check_unique(path, names)
    return names


def write_vhosts(path: Path, names: list[str]) -> None:
    write_file(path, vhosts_content(names))


def vhosts_content(names: Iterable[str]) -> bytes:
    """Return the content of `vhosts.json`."""
    return json_content([{"name": name, "dir": directory_name(name)} for name in names])


class Place:
    """An object of a file, and its path in the file, for messages."""

    def __init__(self, path: Path, way: str, value: object) -> None:
        self._path = path
        self._way = way
        if not isinstance(value, dict):
            raise self.wrong("", "must be an object")
        self._fields: dict[str, object] = value

    def wrong(self, key: str, rule: str) -> StorageError:
        way = f"{self._way}.{key}" if key else self._way
        return StorageError(
            Thing("file", str(self._path)), f"is invalid at {way}: it {rule}", "correct it, then start again"
        )

    def only(self, *keys: str) -> None:
        """Refuse unknown keys: they are misspelled, and the next write would lose them."""
        for key in self._fields.keys() - set(keys):
            raise self.wrong(key, f"is an unknown key; known keys are {', '.join(keys)}")

    def has(self, key: str) -> bool:
        return key in self._fields

    def text(self, key: str, default: str | None = None) -> str:
        value = self._fields.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "must be a text")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self._fields.get(key, [])
        if isinstance(value, str):
            return tuple(part.strip() for part in value.split(",") if part.strip())
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "must be a list of texts")
        return tuple(value)

    def integer(self, key: str, default: int) -> int:
        value = self._fields.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(key, "must be a whole number")
        return value

    def values(self, key: str) -> dict[str, object]:
        value = self._fields.get(key)
        if not isinstance(value, dict):
            raise self.wrong(key, "must be an object")
        return value

    def objects(self, key: str) -> "dict[str, Place]":
        value = self._fields.get(key, {})
        if not isinstance(value, dict):
            raise self.wrong(key, "must be an object")
        return {name: Place(self._path, f"{self._way}.{key}[{name!r}]", item) for name, item in value.items()}

    def places(self, read: "Callable[[Place], T]") -> "dict[str, T]":
        """Read an object all of whose values are objects of one kind."""
        return {name: read(Place(self._path, f"{self._way}[{name!r}]", item)) for name, item in self._fields.items()}


def _user(place: Place) -> UserRecord:
    place.only("name", "password_hash", "hashing_algorithm", "tags", "permissions", "topic_permissions")
    return UserRecord(
        place.text("name"),
        place.text("password_hash", ""),
        place.text("hashing_algorithm", "argon2id"),
        place.texts("tags"),
        {vhost: _permission(at) for vhost, at in place.objects("permissions").items()},
        {vhost: at.places(_topic) for vhost, at in place.objects("topic_permissions").items()},
    )


def _topic(place: "Place") -> TopicRecord:
    place.only("write", "read")
    return TopicRecord(place.text("write"), place.text("read"))


def _permission(place: Place) -> PermissionRecord:
    configure = "config" if place.has("config") else "configure"
    place.only(configure, "write", "read")
    return PermissionRecord(place.text(configure), place.text("write"), place.text("read"))


def read_places(path: Path) -> list[Place]:
    """Return the objects of a list; a missing file has none. Names must be unique."""
    places = [Place(path, f"[{index}]", item) for index, item in enumerate(_read_list(path) or [])]
    _check_unique(path, [place.text("name") for place in places])
    return places


def _read_list(path: Path) -> list[object] | None:
    try:
        value = read_json(path)
    except FileNotFoundError:
        return None
    if not isinstance(value, list):
        raise StorageError(Thing("file", str(path)), "must hold a list", "correct it, then start again")
    return value


def _check_unique(path: Path, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise StorageError(Thing("file", str(path)), f"names '{name}' twice", "remove one of the two")
        seen.add(name)
