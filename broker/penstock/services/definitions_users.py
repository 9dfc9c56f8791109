"""The users' part of the definitions JSON.

An import adds users and permissions and replaces those of the same names, because every broker has its own `guest`; it
deletes none. Unsupported entries are reported before the import. Thousands of entries are read on a thread, because
each pattern is compiled.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Protocol

from penstock.identity import Permission, TopicPermission, User, Users
from penstock.identity.definitions_json import (
    problem_of_permission,
    problem_of_topic,
    problem_of_user,
    read_limits_of_user,
    read_permission,
    read_topic,
    read_user,
    text_of,
)
from penstock.model.limits import Limits
from penstock.model.records import Access


class ChangingAccounts(Protocol):
    """Users that can be changed together."""

    def users(self) -> list[User]: ...
    async def change(self, change: Callable[[Users], Users], /) -> None:
        """Make several changes: all of them or none, where one broker decides."""
        ...


class ChangingLimits(Protocol):
    """Limits of users that can be changed together."""

    def find(self, user: str, /) -> Limits: ...
    async def set_all(self, changes: Mapping[str, Limits], /) -> int:
        """Set the limits of several users; return how many changed."""
        ...


class DefinitionsUsers:
    """Implements `vhost.ports.DefinitionsUsers`."""

    def __init__(self, accounts: ChangingAccounts, limits: ChangingLimits) -> None:
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
        problems += [problem for entry in permissions if (problem := problem_of_permission(entry, known))]
        problems += [problem for entry in topics if (problem := problem_of_topic(entry, known))]
        return problems or self._problems_of_the_last_administrators(users)

    def _problems_of_the_last_administrators(self, users: list[dict[str, Any]]) -> list[str]:
        """Return one line for each administrator whom the entries replace, when no administrator would be left."""
        wanted = {user.name: user.is_administrator for user in map(read_user, users)}
        administrators = [user.name for user in self._accounts.users() if user.is_administrator]
        if any(wanted.values()) or any(name not in wanted for name in administrators):
            return []
        rule = "has no tag administrator, and no administrator would be left"
        return [f"user {name!r} {rule}" for name in administrators]

    async def import_users(self, users: list[dict[str, Any]]) -> int:
        """Import users that `check` found valid, and return how many are new or changed."""
        wanted = await asyncio.to_thread(lambda: list(map(read_user, users)))
        known = {user.name: user for user in self._accounts.users()}
        changed = [user for user in wanted if not _is_same(user, known.get(user.name))]

        def change(now: Users) -> Users:
            return now.merge(_with_what_it_may(user, now.find(user.name)) for user in changed)

        if changed:
            await self._accounts.change(change)
        limits = {
            text_of(entry.get("name")): limits for entry in users if (limits := read_limits_of_user(entry)) is not None
        }
        # A user that was deleted meanwhile leaves none to the next one of its name. A deletion forgets limits last.
        there = {user.name for user in self._accounts.users()}
        await self._limits.set_all({name: each for name, each in limits.items() if name in there})
        return len(changed)

    async def import_permissions(self, permissions: list[dict[str, Any]]) -> int:
        """Import permissions, and return how many are new or changed."""
        wanted: dict[str, dict[str, Permission]] = {}
        for user, vhost, permission in await asyncio.to_thread(lambda: list(map(read_permission, permissions))):
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
        """Import topic permissions, and return how many are new or changed."""
        read = await asyncio.to_thread(lambda: list(map(read_topic, topics)))
        wanted = {(user, vhost, exchange): topic for user, vhost, exchange, topic in read}
        known = {user.name: user.topics for user in self._accounts.users()}
        changed: dict[str, dict[str, dict[str, TopicPermission]]] = {}
        changed_count = 0
        for (user, vhost, exchange), topic in wanted.items():
            if known.get(user, {}).get(vhost, {}).get(exchange) != topic:
                changed.setdefault(user, {}).setdefault(vhost, {})[exchange] = topic
                changed_count += 1

        def change(now: Users) -> Users:
            return now.merge(_with_topics(now.get(user), by_vhost) for user, by_vhost in changed.items())

        if changed:
            await self._accounts.change(change)
        return changed_count


def _with_permissions(user: User, by_vhost: Mapping[str, Permission]) -> User:
    return replace(user, permissions=MappingProxyType({**user.permissions, **by_vhost}))


def _with_topics(user: User, by_vhost: Mapping[str, Mapping[str, TopicPermission]]) -> User:
    topics = {
        vhost: MappingProxyType({**user.topics.get(vhost, {}), **by_exchange})
        for vhost, by_exchange in by_vhost.items()
    }
    return replace(user, topics=MappingProxyType({**user.topics, **topics}))


def _is_same(user: User, known: User | None) -> bool:
    return known is not None and _with_what_it_may(user, known) == known


def _with_what_it_may(user: User, known: User | None) -> User:
    return user if known is None else replace(user, permissions=known.permissions, topics=known.topics)
