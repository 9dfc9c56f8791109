"""Converts between the users of a broker and the records of `users.json`."""

from pathlib import Path
from types import MappingProxyType

from penstock.identity import Permission, TopicPermission, User, Users
from penstock.identity.passwords import algorithm_named, check_digest, is_too_costly
from penstock.identity.users import parse_tags
from penstock.model.errors import RefusedError, StorageError, Thing
from penstock.model.records import Access
from penstock.storage.records_json import PermissionRecord, TopicRecord, UserRecord


def user_of(path: Path, record: UserRecord) -> User:
    """Return the user of a record. Raises StorageError for an unsupported one."""
    algorithm = algorithm_named(record.hashing_algorithm, record.password_hash)
    try:
        # A costly digest that an earlier version accepted stays: a start must not fail, though the user cannot log in.
        if not is_too_costly(record.password_hash, algorithm):
            check_digest(record.password_hash, algorithm)
        permissions = {
            vhost: Permission.compile(held.configure, held.write, held.read)
            for vhost, held in record.permissions.items()
        }
        topics = {
            vhost: MappingProxyType(
                {
                    exchange: TopicPermission.compile(record.name, vhost, held.write, held.read)
                    for exchange, held in by_exchange.items()
                }
            )
            for vhost, by_exchange in record.topics.items()
        }
        tags = parse_tags(record.tags)
    except RefusedError as refusal:
        raise StorageError(
            Thing("file", str(path)), f"is invalid at user '{record.name}': {refusal}", "correct it, then start again"
        ) from refusal
    return User(
        record.name, record.password_hash, algorithm, tags, MappingProxyType(permissions), MappingProxyType(topics)
    )


def records_of(users: Users) -> list[UserRecord]:
    return [
        UserRecord(
            user.name,
            user.password_hash,
            user.hashing_algorithm,
            tuple(tag.value for tag in user.tags),
            {
                vhost: PermissionRecord(
                    held.pattern(Access.CONFIGURE), held.pattern(Access.WRITE), held.pattern(Access.READ)
                )
                for vhost, held in user.permissions.items()
            },
            {
                vhost: {exchange: TopicRecord(topic.write, topic.read) for exchange, topic in topics.items()}
                for vhost, topics in user.topics.items()
            },
        )
        for user in users.all()
    ]
