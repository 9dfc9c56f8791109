"""The users' part of the definitions JSON. An import adds users and permissions and puts those of the same names in
their place, because every broker has a `guest` of its own; it deletes none. What cannot be honoured is told
beforehand."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from penstock.auth import Permission, TopicPermission, User, Users
from penstock.auth.passwords import algorithm_named, check_digest
from penstock.auth.user_limits import UserLimits, read_user_limits
from penstock.auth.users import check_user_name, parse_tags
from penstock.model.errors import RefusedError
from penstock.model.names import exchange_name
from penstock.model.records import Access
from penstock.node.accounts import Accounts
from penstock.node.user_limits import LimitsOfUsers

_USER_KEYS = frozenset({"name", "password_hash", "hashing_algorithm", "tags", "limits"})
_PERMISSION_KEYS = frozenset({"user", "name", "vhost", "configure", "write", "read"})
_TOPIC_KEYS = frozenset({"user", "vhost", "exchange", "write", "read"})


class DefinitionsUsers:
    """Implements `vhost.ports.DefinitionsUsers`."""

    def __init__(self, accounts: Accounts, limits: LimitsOfUsers) -> None:
        self._accounts = accounts
        self._limits = limits

    def export_users(self) -> list[dict[str, Any]]:
        return [
            {
                "name": user.name,
                "password_hash": user.password_hash,
                "hashing_algorithm": user.hashing_algorithm,
                "tags": [tag.value for tag in user.tags],
                "limits": self._limits.find(user.name).written(),
            }
            for user in self._accounts.users()
        ]

    def export_permissions(self) -> list[dict[str, Any]]:
        return [
            {"user": user.name, "vhost": vhost, **{access.value: held.pattern(access) for access in Access}}
            for user in self._accounts.users()
            for vhost, held in user.permissions.items()
        ]

    def export_topics(self) -> list[dict[str, Any]]:
        return [
            {"user": user.name, "vhost": vhost, "exchange": exchange, "write": topic.write, "read": topic.read}
            for user in self._accounts.users()
            for vhost, topics in user.topics.items()
            for exchange, topic in topics.items()
        ]

    def check(
        self, users: list[dict[str, Any]], permissions: list[dict[str, Any]], topics: list[dict[str, Any]]
    ) -> list[str]:
        problems = [problem for entry in users if (problem := problem_of_user(entry))]
        known = {user.name for user in self._accounts.users()} | {str(entry.get("name")) for entry in users}
        problems += [problem for entry in permissions if (problem := _problem_of_permission(entry, known))]
        problems += [problem for entry in topics if (problem := _problem_of_topic(entry, known))]
        return problems

    async def import_users(self, users: list[dict[str, Any]]) -> int:
        """Expects what `check` found no fault with. Gives how many are new or changed."""
        wanted = [read_user(entry) for entry in users]
        known = {user.name: user for user in self._accounts.users()}
        changed = [user for user in wanted if not _is_same(user, known.get(user.name))]

        def change(now: Users) -> Users:
            return now.merge(_with_what_it_may(user, now.find(user.name)) for user in changed)

        if changed:
            await self._accounts.change(change)
        limits = {_text(entry.get("name")): limits for entry in users if (limits := _read_limits(entry)) is not None}
        await self._limits.set_all(limits)
        return len(changed)

    async def import_permissions(self, permissions: list[dict[str, Any]]) -> int:
        """Gives how many are new or changed."""
        wanted: dict[str, dict[str, Permission]] = {}
        for entry in permissions:
            user, vhost, permission = _read_permission(entry)
            wanted.setdefault(user, {})[vhost] = permission
        known = {user.name: user.permissions for user in self._accounts.users()}
        changed_count = sum(
            known.get(user, {}).get(vhost) != permission
            for user, by_vhost in wanted.items()
            for vhost, permission in by_vhost.items()
        )

        def change(now: Users) -> Users:
            return now.merge(_with_permissions(now.get(user), by_vhost) for user, by_vhost in wanted.items())

        if changed_count:
            await self._accounts.change(change)
        return changed_count

    async def import_topics(self, topics: list[dict[str, Any]]) -> int:
        """Gives how many are new or changed."""
        wanted = {(user, vhost, exchange): topic for user, vhost, exchange, topic in map(_read_topic, topics)}
        known = {user.name: user.topics for user in self._accounts.users()}
        changed = {
            (user, vhost, exchange): topic
            for (user, vhost, exchange), topic in wanted.items()
            if known.get(user, {}).get(vhost, {}).get(exchange) != topic
        }

        def change(now: Users) -> Users:
            for (user, vhost, exchange), topic in changed.items():
                now = now.set_topic(user, vhost, exchange, topic)
            return now

        if changed:
            await self._accounts.change(change)
        return len(changed)


def _with_permissions(user: User, by_vhost: Mapping[str, Permission]) -> User:
    return replace(user, permissions=MappingProxyType({**user.permissions, **by_vhost}))


def _is_same(user: User, known: User | None) -> bool:
    return known is not None and _with_what_it_may(user, known) == known


def _with_what_it_may(user: User, known: User | None) -> User:
    return user if known is None else replace(user, permissions=known.permissions, topics=known.topics)


def problem_of_user(entry: dict[str, Any]) -> str:
    unknown = sorted(entry.keys() - _USER_KEYS)
    if unknown:
        return f"user {entry.get('name')!r} has {', '.join(unknown)}, which cannot be honoured"
    try:
        user = read_user(entry)
        _read_limits(entry)
        check_user_name(user.name)
        check_digest(user.password_hash, user.hashing_algorithm)
    except RefusedError as refusal:
        return f"user {entry.get('name')!r}: {refusal}"
    except (TypeError, ValueError):
        return f"user {entry.get('name')!r} has a field of the wrong type"
    return ""


def _problem_of_permission(entry: dict[str, Any], known: set[str]) -> str:
    unknown = sorted(entry.keys() - _PERMISSION_KEYS)
    if unknown:
        return f"a permission has {', '.join(unknown)}, which cannot be honoured"
    try:
        user, vhost, _ = _read_permission(entry)
    except RefusedError as refusal:
        return f"a permission of user {_user_of(entry)!r}: {refusal}"
    except (TypeError, ValueError):
        return f"a permission of user {_user_of(entry)!r} has a field of the wrong type"
    return "" if user in known else f"a permission in vhost {vhost!r} is for user {user!r}, who is nowhere"


def _problem_of_topic(entry: dict[str, Any], known: set[str]) -> str:
    unknown = sorted(entry.keys() - _TOPIC_KEYS)
    if unknown:
        return f"a topic permission has {', '.join(unknown)}, which cannot be honoured"
    try:
        user, vhost, _, _ = _read_topic(entry)
    except RefusedError as refusal:
        return f"a topic permission of user {entry.get('user')!r}: {refusal}"
    except (TypeError, ValueError):
        return f"a topic permission of user {entry.get('user')!r} has a field of the wrong type"
    return "" if user in known else f"a topic permission in vhost {vhost!r} is for user {user!r}, who is nowhere"


def read_user(entry: dict[str, Any]) -> User:
    tags = entry.get("tags") or ()
    if isinstance(tags, str):
        tags = [part.strip() for part in tags.split(",") if part.strip()]
    password_hash = _text(entry.get("password_hash") or "")
    algorithm = algorithm_named(_text(entry.get("hashing_algorithm") or ""), password_hash)
    return User(_text(entry.get("name")), password_hash, algorithm, parse_tags(map(_text, tags)))


def _read_limits(entry: dict[str, Any]) -> UserLimits | None:
    """None when it says nothing of them: what is there stays."""
    limits = entry.get("limits")
    if limits is None:
        return None
    if not isinstance(limits, dict):
        raise TypeError("an object is wanted")
    return read_user_limits(_text(entry.get("name")), limits)


def _read_permission(entry: dict[str, Any]) -> tuple[str, str, Permission]:
    patterns = Permission.compile(_text(entry.get("configure")), _text(entry.get("write")), _text(entry.get("read")))
    return _text(_user_of(entry)), _text(entry.get("vhost")), patterns


def _read_topic(entry: dict[str, Any]) -> tuple[str, str, str, TopicPermission]:
    user, vhost, exchange = _text(entry.get("user")), _text(entry.get("vhost")), _text(entry.get("exchange"))
    topic = TopicPermission.compile(user, vhost, _text(entry.get("write")), _text(entry.get("read")))
    return user, vhost, exchange_name(exchange), topic


def _user_of(entry: dict[str, Any]) -> object:
    """LavinMQ's offline export calls it `name`."""
    return entry.get("user", entry.get("name"))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is wanted")
    return value
