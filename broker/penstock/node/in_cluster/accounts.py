"""The users of a cluster: log-ins are checked here, and changes are commands to the cluster's metadata."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final

from penstock.cluster.meta.commands import (
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    MetaCommand,
    PutUser,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
)
from penstock.identity import Permission, TopicPermission, User, Users
from penstock.kit.peers import NOWHERE, Source
from penstock.metadata.effects import Done
from penstock.model.errors import NotAuthenticatedError
from penstock.model.limits import NO_LIMITS, Limits
from penstock.model.names import VhostName
from penstock.model.records import Access
from penstock.node.in_cluster.metadata import Metadata
from penstock.services.password_log_ins import PasswordLogIns
from penstock.storage.records_json import PermissionRecord, TopicRecord

TOGETHER_MAX: Final = 256
"""Commands of an import that wait for the metadata's leader together."""


class ClusterAccounts:
    """Implements `services.ports.Accounts`. Digests of other brokers stay as they are."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self.passwords = PasswordLogIns(lambda: metadata.state.users)

    def close(self) -> None:
        self.passwords.close()

    def users(self) -> list[User]:
        return self._metadata.state.users.all()

    def find(self, name: str) -> User | None:
        return self._metadata.state.users.find(name)

    async def log_in(self, name: str, password: str, *, source: Source = NOWHERE) -> User:
        """Check a user's credentials, again if another broker changed the user just now.

        Raises NotAuthenticatedError.
        """
        known = self.find(name)
        try:
            return await self.passwords.log_in(name, password, source=source)
        except NotAuthenticatedError:
            await self._metadata.catch_up()
            if self.find(name) is known:
                raise
        return await self.passwords.log_in(name, password, source=source)

    async def put_user(
        self,
        name: str,
        password: str | None,
        tags: Sequence[str] | None,
        *,
        force: bool = False,
        is_random: bool = False,
    ) -> bool:
        """Return whether the user is new."""
        digest, algorithm = await self.passwords.digest_of(password, is_random=is_random)
        given = None if tags is None else tuple(tags)
        answer = await self._metadata.submit(PutUser(name, given, digest, algorithm, force))
        return isinstance(answer, Done) and bool(answer.count)

    async def delete_user(
        self, name: str, *, force: bool = False, forget: Callable[[str], Awaitable[None]] | None = None
    ) -> None:
        """Delete a user with permissions and limits; `forget` deletes what the user has on this broker."""
        await self._metadata.submit(DeleteUser(name, force))
        if forget is not None:
            await forget(name)

    async def set_permission(self, name: str, vhost: str, permission: Permission) -> None:
        await self._metadata.submit(_permission(name, vhost, permission))

    async def delete_permission(self, name: str, vhost: str) -> None:
        await self._metadata.submit(DeletePermission(name, VhostName(vhost)))

    async def set_topic(self, name: str, vhost: str, exchange: str, topic: TopicPermission) -> None:
        await self._metadata.submit(_topic(name, vhost, exchange, topic))

    async def delete_topics(self, name: str, vhost: str, exchange: str | None) -> None:
        await self._metadata.submit(DeleteTopicPermissions(name, VhostName(vhost), exchange))

    async def change(self, change: Callable[[Users], Users]) -> None:
        """Make what an import adds or replaces: each user and each permission is a command of its own."""
        before = self._metadata.state.users
        after = change(before)
        touched = [user for name in sorted(after.touched) if (user := after.find(name)) is not None]
        await submit_all(self._metadata, [command for user in touched for command in _puts(before, user)])
        await submit_all(self._metadata, [command for user in touched for command in _grants(before, user)])


class ClusterLimits:
    """Implements `services.ports.LimitsOfUsers`."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    def all(self) -> Mapping[str, Limits]:
        return self._metadata.state.user_limits

    def find(self, user: str) -> Limits:
        return self.all().get(user, NO_LIMITS)

    async def set(self, user: str, limits: Limits) -> None:
        await self.set_all({user: limits})

    async def set_all(self, changes: Mapping[str, Limits]) -> int:
        """Set the limits of several users; return how many changed."""
        changed = {user: limits for user, limits in changes.items() if self.find(user) != limits}
        await submit_all(self._metadata, [SetUserLimits(user, limits) for user, limits in changed.items()])
        return len(changed)


async def submit_all(metadata: Metadata, commands: Sequence[MetaCommand]) -> None:
    """Submit commands that do not depend on each other. Raises what the first of them raises that fails."""
    for start in range(0, len(commands), TOGETHER_MAX):
        await asyncio.gather(*map(metadata.submit, commands[start : start + TOGETHER_MAX]))


def _puts(before: Users, user: User) -> Iterator[MetaCommand]:
    known = before.find(user.name)
    digest, tags = (user.password_hash, user.hashing_algorithm), tuple(tag.value for tag in user.tags)
    if known is None or (known.password_hash, known.hashing_algorithm) != digest or known.tags != user.tags:
        yield PutUser(user.name, tags, *digest, force=True)


def _grants(before: Users, user: User) -> Iterator[MetaCommand]:
    known = before.find(user.name)
    for vhost, permission in user.permissions.items():
        if known is None or known.permissions.get(vhost) != permission:
            yield _permission(user.name, vhost, permission)
    for vhost, topics in user.topics.items():
        held = {} if known is None else known.topics.get(vhost, {})
        yield from (_topic(user.name, vhost, name, topic) for name, topic in topics.items() if held.get(name) != topic)


def _permission(user: str, vhost: str, permission: Permission) -> SetPermission:
    patterns = (permission.pattern(access) for access in (Access.CONFIGURE, Access.WRITE, Access.READ))
    return SetPermission(user, VhostName(vhost), PermissionRecord(*patterns))


def _topic(user: str, vhost: str, exchange: str, topic: TopicPermission) -> SetTopicPermission:
    return SetTopicPermission(user, VhostName(vhost), exchange, TopicRecord(topic.write, topic.read))
