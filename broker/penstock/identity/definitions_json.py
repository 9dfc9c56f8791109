"""Users, permissions and topic permissions in definitions JSON; each invalid entry is reported in a sentence."""

from collections.abc import Callable
from typing import Any

from penstock.identity.passwords import algorithm_named, check_digest
from penstock.identity.permissions import Permission
from penstock.identity.topics import TopicPermission
from penstock.identity.users import User, check_user_name, parse_tags
from penstock.model.errors import RefusedError
from penstock.model.limits import Holder, Limits, read_limits
from penstock.model.names import exchange_name

_USER_KEYS = frozenset({"name", "password_hash", "hashing_algorithm", "tags", "limits"})
_PERMISSION_KEYS = frozenset({"user", "name", "vhost", "configure", "write", "read"})
_TOPIC_KEYS = frozenset({"user", "vhost", "exchange", "write", "read"})


def problem_of_user(entry: dict[str, Any]) -> str:
    unknown = sorted(entry.keys() - _USER_KEYS)
    if unknown:
        return f"user {entry.get('name')!r} has {', '.join(unknown)}, which is not supported"
    try:
        user = read_user(entry)
        read_limits_of_user(entry)
        check_user_name(user.name)
        check_digest(user.password_hash, user.hashing_algorithm)
    except RefusedError as refusal:
        return f"user {entry.get('name')!r}: {refusal.item}"
    except (TypeError, ValueError):
        return f"user {entry.get('name')!r} has a field of the wrong type"
    return ""


def problem_of_permission(entry: dict[str, Any], known: set[str]) -> str:
    unknown = sorted(entry.keys() - _PERMISSION_KEYS)
    if unknown:
        return f"a permission has {', '.join(unknown)}, which is not supported"
    try:
        user, vhost, _ = read_permission(entry)
    except RefusedError as refusal:
        return f"a permission of user {_user_of(entry)!r}: {refusal.item}"
    except (TypeError, ValueError):
        return f"a permission of user {_user_of(entry)!r} has a field of the wrong type"
    return "" if user in known else f"a permission in vhost {vhost!r} is for user {user!r}, which does not exist"


def problem_of_topic(entry: dict[str, Any], known: set[str]) -> str:
    unknown = sorted(entry.keys() - _TOPIC_KEYS)
    if unknown:
        return f"a topic permission has {', '.join(unknown)}, which is not supported"
    try:
        user, vhost, _, _ = read_topic(entry, TopicPermission.compile)
    except RefusedError as refusal:
        return f"a topic permission of user {entry.get('user')!r}: {refusal.item}"
    except (TypeError, ValueError):
        return f"a topic permission of user {entry.get('user')!r} has a field of the wrong type"
    return "" if user in known else f"a topic permission in vhost {vhost!r} is for user {user!r}, which does not exist"


def read_user(entry: dict[str, Any]) -> User:
    tags = entry.get("tags") or ()
    if isinstance(tags, str):
        tags = [part.strip() for part in tags.split(",") if part.strip()]
    password_hash = text_of(entry.get("password_hash") or "")
    algorithm = algorithm_named(text_of(entry.get("hashing_algorithm") or ""), password_hash)
    return User(text_of(entry.get("name")), password_hash, algorithm, parse_tags(map(text_of, tags)))


def read_limits_of_user(entry: dict[str, Any]) -> Limits | None:
    """Return the limits; None when the entry has none: existing ones stay."""
    limits = entry.get("limits")
    if limits is None:
        return None
    if not isinstance(limits, dict):
        raise TypeError("it must be an object")
    return read_limits(Holder.USER, text_of(entry.get("name")), limits)


def read_permission(entry: dict[str, Any]) -> tuple[str, str, Permission]:
    patterns = Permission.compile(
        text_of(entry.get("configure")), text_of(entry.get("write")), text_of(entry.get("read"))
    )
    return text_of(_user_of(entry)), text_of(entry.get("vhost")), patterns


def read_topic(
    entry: dict[str, Any], read: Callable[[str, str, str, str], TopicPermission] = TopicPermission.checked
) -> tuple[str, str, str, TopicPermission]:
    """Read an entry that `problem_of_topic` found valid."""
    user, vhost, exchange = text_of(entry.get("user")), text_of(entry.get("vhost")), text_of(entry.get("exchange"))
    topic = read(user, vhost, text_of(entry.get("write")), text_of(entry.get("read")))
    return user, vhost, exchange_name(exchange), topic


def _user_of(entry: dict[str, Any]) -> object:
    """Return the user, which LavinMQ's offline export calls `name`."""
    return entry.get("user", entry.get("name"))


def text_of(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("it must be a string")
    return value
