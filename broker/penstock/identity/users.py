"""The users of a broker as one immutable value.

Every change returns a new one, so that the owner can write it to disk first and use it afterwards. It knows only
digests of passwords, and not which vhosts exist.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType

from penstock.identity.passwords import ARGON2ID, check_digest
from penstock.identity.permissions import Permission
from penstock.identity.topics import NarrowedPermission, TopicPermission
from penstock.model.errors import InvalidArgumentError, NotFoundError, PreconditionFailedError, Thing
from penstock.model.names import user_name

LOOPBACK_ONLY_USER = "guest"  # its first password is public


class Tag(StrEnum):
    """Permissions of a user beyond one vhost's resources."""

    ADMINISTRATOR = "administrator"
    MONITORING = "monitoring"
    MANAGEMENT = "management"
    POLICYMAKER = "policymaker"
    IMPERSONATOR = "impersonator"


Topics = Mapping[str, Mapping[str, TopicPermission]]
"""By vhost and exchange."""


def _no_permissions() -> Mapping[str, Permission]:
    return MappingProxyType({})


def _no_topics() -> Topics:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class User:
    """One user; `permissions` by vhost, and `topics` that narrow them."""

    name: str
    password_hash: str
    hashing_algorithm: str = ARGON2ID
    tags: tuple[Tag, ...] = ()
    permissions: Mapping[str, Permission] = field(default_factory=_no_permissions)
    topics: Topics = field(default_factory=_no_topics)

    @property
    def is_administrator(self) -> bool:
        return Tag.ADMINISTRATOR in self.tags

    @property
    def expires_at_ms(self) -> int | None:
        return None

    def sees_vhost(self, vhost: str) -> bool:
        """Return whether the vhost is visible to this user."""
        return vhost in self.permissions or self.is_administrator or Tag.MONITORING in self.tags

    def names_vhost(self, vhost: str) -> bool:
        """Return whether any permission of the user is for that vhost."""
        return vhost in self.permissions or vhost in self.topics

    def allowance(self, vhost: str) -> Permission | NarrowedPermission | None:
        permission, topics = self.permissions.get(vhost), self.topics.get(vhost)
        return NarrowedPermission(permission, topics) if permission is not None and topics else permission


class Users:
    """Immutable users, in the order of addition, as in the file.

    A change costs a copy of a dictionary and what it touches, so that many changes of many users are short.
    """

    def __init__(self, users: Iterable[User] = ()) -> None:
        self._by_name: Mapping[str, User] = {user.name: user for user in users}
        self.administrators = frozenset(user.name for user in self._by_name.values() if user.is_administrator)
        self.touched = frozenset(self._by_name)
        """The names that were added, changed or deleted since `settled`."""

    def settled(self) -> "Users":
        """Return the same users with no name touched."""
        return self._made(self._by_name, self.administrators, frozenset()) if self.touched else self

    def __len__(self) -> int:
        return len(self._by_name)

    def all(self) -> list[User]:
        return list(self._by_name.values())

    def find(self, name: str) -> User | None:
        return self._by_name.get(name)

    def get(self, name: str) -> User:
        user = self._by_name.get(name)
        if user is None:
            raise NotFoundError(Thing("user", name), "add it first or check the name")
        return user

    def put(
        self,
        name: str,
        tags: Iterable[str] | None,
        password_hash: str | None,
        algorithm: str = ARGON2ID,
        *,
        force: bool = False,
    ) -> "Users":
        """Add a user or change one.

        Without a digest the old one stays, and a new user cannot log in; without tags the user's tags stay.

        Raises PreconditionFailedError, unless forced, when no administrator is left.
        """
        check_user_name(name)
        known = self._by_name.get(name)
        if password_hash is None:
            password_hash = known.password_hash if known else ""
            algorithm = known.hashing_algorithm if known else ARGON2ID
        else:
            check_digest(password_hash, algorithm)
        changed = known or User(name, "")
        kept = changed.tags if tags is None else parse_tags(tags)
        if Tag.ADMINISTRATOR not in kept and not force:
            self._check_not_last_administrator(name)
        put = replace(changed, password_hash=password_hash, hashing_algorithm=algorithm, tags=kept)
        return self._with({name: put})

    def rehash(self, name: str, was: str, password_hash: str) -> "Users":
        """Replace another broker's digest by ours; a password that changed meanwhile stays."""
        user = self._by_name.get(name)
        if user is None or user.password_hash != was:
            return self
        return self._with({name: replace(user, password_hash=password_hash, hashing_algorithm=ARGON2ID)})

    def delete(self, name: str, *, force: bool = False) -> "Users":
        """Delete a user. Raises PreconditionFailedError, unless forced, when no administrator is left."""
        self.check_delete(name, force=force)
        return self._with({name: None})

    def check_delete(self, name: str, *, force: bool = False) -> None:
        """Raise what `delete` raises."""
        self.get(name)
        if not force:
            self._check_not_last_administrator(name)

    def set_permission(self, name: str, vhost: str, permission: Permission) -> "Users":
        user = self.get(name)
        return self._with({name: replace(user, permissions=MappingProxyType({**user.permissions, vhost: permission}))})

    def delete_permission(self, name: str, vhost: str) -> "Users":
        user = self.get(name)
        if vhost not in user.permissions:
            raise NotFoundError(Thing("permission of user", name, vhost), "list the existing permissions")
        return self._with({name: _without(user, vhost)})

    def set_topic(self, name: str, vhost: str, exchange: str, topic: TopicPermission) -> "Users":
        user = self.get(name)
        in_vhost = MappingProxyType({**user.topics.get(vhost, {}), exchange: topic})
        return self._with({name: replace(user, topics=MappingProxyType({**user.topics, vhost: in_vhost}))})

    def delete_topics(self, name: str, vhost: str, exchange: str | None) -> "Users":
        """Delete the topic permission of one exchange, or all of the vhost. Raises NotFoundError when there is none."""
        user = self.get(name)
        found = user.topics.get(vhost, {})
        if not found or (exchange is not None and exchange not in found):
            raise NotFoundError(Thing("topic permission of user", name, vhost), "list the existing topic permissions")
        left = {} if exchange is None else {known: topic for known, topic in found.items() if known != exchange}
        topics = {known: topics for known, topics in user.topics.items() if known != vhost}
        if left:
            topics[vhost] = MappingProxyType(left)
        return self._with({name: replace(user, topics=MappingProxyType(topics))})

    def without_vhost(self, vhost: str) -> "Users":
        """Return the users without their permissions in a vhost. Returns this very value when there are none."""
        concerned = [user for user in self._by_name.values() if user.names_vhost(vhost)]
        if not concerned:
            return self
        return self._with({user.name: _without_topics(_without(user, vhost), vhost) for user in concerned})

    def with_user(self, user: User) -> "Users":
        """Add or replace a user that was checked when it was stored."""
        return self._with({user.name: user})

    def merge(self, users: Iterable[User]) -> "Users":
        """Add many users, or replace those of the same names, in one step."""
        merged: dict[str, User | None] = {}
        for user in users:
            check_user_name(user.name)
            check_digest(user.password_hash, user.hashing_algorithm)
            merged[user.name] = user
        return self._with(merged)

    def _check_not_last_administrator(self, name: str) -> None:
        if self.administrators == {name}:
            raise PreconditionFailedError(
                Thing("user", name),
                "is the only user with the tag administrator",
                "add another administrator first, or use force",
            )

    def _with(self, changes: Mapping[str, User | None]) -> "Users":
        """Return the users with some added or replaced, or with None deleted."""
        by_name, administrators = dict(self._by_name), set(self.administrators)
        for name, user in changes.items():
            administrators.discard(name)
            if user is None:
                del by_name[name]
                continue
            by_name[name] = user
            if user.is_administrator:
                administrators.add(name)
        return self._made(by_name, frozenset(administrators), self.touched.union(changes))

    @classmethod
    def _made(cls, by_name: Mapping[str, User], administrators: frozenset[str], touched: frozenset[str]) -> "Users":
        made = cls()
        made._by_name, made.administrators, made.touched = by_name, administrators, touched
        return made


def parse_tags(tags: Iterable[str]) -> tuple[Tag, ...]:
    """Return tags once each, in the order given."""
    found: dict[Tag, None] = {}
    for tag in tags:
        try:
            found[Tag(tag)] = None
        except ValueError as error:
            raise InvalidArgumentError(
                Thing("tag", tag), "is not a valid tag", f"use one of {', '.join(Tag)}", field="tags"
            ) from error
    return tuple(found)


def _without(user: User, vhost: str) -> User:
    left = {name: permission for name, permission in user.permissions.items() if name != vhost}
    return replace(user, permissions=MappingProxyType(left))


def _without_topics(user: User, vhost: str) -> User:
    left = {name: topics for name, topics in user.topics.items() if name != vhost}
    return replace(user, topics=MappingProxyType(left))


def check_user_name(name: str) -> None:
    """Refuse a name that no user can have."""
    user_name(name)
    thing = Thing("user", name)
    if ":" in name:  # basic credentials end the name at the first colon
        raise InvalidArgumentError(thing, "has a colon in its name", "choose a name without a colon", field="name")
    if not name.isprintable():
        raise InvalidArgumentError(thing, "has unprintable characters in its name", "choose another name", field="name")
