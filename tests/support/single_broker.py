"""One broker without a cluster, as far as its metadata goes: what it makes of the commands of a cluster."""

import json
from pathlib import Path
from typing import Any, Final, cast

from penstock.cluster.meta.commands import (
    CreateVhost,
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    DeleteVhost,
    GrowVhost,
    InVhost,
    MetaCommand,
    PutUser,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
)
from penstock.cluster.meta.decide import in_cluster
from penstock.identity import Permission, TopicPermission, Users
from penstock.model.names import ExchangeName
from penstock.node.vhosts_storage import VhostsStorage
from penstock.services.accounts import Accounts
from penstock.services.user_limits import LimitsOfUsers
from penstock.storage import DataDirectory, write_users, write_vhosts
from penstock.storage.amqp_frames import encode
from penstock.storage.definitions_amqp import read_changes
from penstock.storage.definitions_fold import Fold
from penstock.storage.vhost_files import DEFINITIONS
from penstock.vhost.vhosts import Vhosts
from support.vhost_fakes import FakeShard, Tasks, rights

NO_SETTINGS: Final[tuple[object, ...]] = ([], {}, {"default_queue_type": "classic"})
"""The contents of files that say what they would say if they were missing."""


class _Shard(FakeShard):
    """A shard that takes a queue again when a policy changes it."""

    def put_queue(self, queue_id: int, name: str, /, *, auto_delete: bool, level: str | None) -> None:
        self.queues.pop(queue_id, None)
        super().put_queue(queue_id, name, auto_delete=auto_delete, level=level)


class _Engine:
    def open_shard(self, _name: str, _directory: str, *, page_cache_lost: bool) -> FakeShard:
        del page_cache_lost
        return _Shard()


class SingleBroker:
    """It runs commands one after another, in the session that they had in the cluster."""

    def __init__(self, directory: Path) -> None:
        self._directory = DataDirectory.open(directory)
        write_users(self._directory.users_file, [])
        write_vhosts(self._directory.vhosts_file, [])
        self._limits = LimitsOfUsers.open(self._directory.user_limits_file)
        self._accounts = Accounts(self._directory.users_file, Users(), self._limits, self._directory.deletions)
        self._tasks = Tasks()
        self._storage = VhostsStorage(self._directory, cast(Any, _Engine()), self._accounts.forget_vhost)
        self._vhosts = Vhosts(self._storage, self._tasks.spawn, lambda: "0123456789abcdefghijkl")

    async def run(self, command: MetaCommand, session: int) -> None:
        match command:
            case CreateVhost(name, shard_count):
                await self._vhosts.make(name, shard_count)
            case DeleteVhost(name):
                await self._vhosts.delete(rights(), name)
            case GrowVhost(name, shard_count):
                await self._vhosts.set_shard_count(rights(), name, shard_count)
            case InVhost(name, inner):
                await cast(Any, self._vhosts.get(name))._owner.submit(in_cluster(inner, session))
            case SetUserLimits(user, limits):
                await self._limits.set(user, limits)
            case _:
                await self._run_on_user(command)

    async def _run_on_user(self, command: MetaCommand) -> None:
        accounts = self._accounts
        match command:
            case PutUser(name, tags, digest, algorithm):
                await accounts.change(lambda users: users.put(name, tags, digest, algorithm))
            case DeleteUser(name):
                await accounts.delete_user(name)
            case SetPermission(user, vhost, held):
                await accounts.set_permission(user, vhost, Permission.compile(held.configure, held.write, held.read))
            case DeletePermission(user, vhost):
                await accounts.delete_permission(user, vhost)
            case SetTopicPermission(user, vhost, exchange, topic):
                compiled = TopicPermission.compile(user, vhost, topic.write, topic.read)
                await accounts.set_topic(user, vhost, ExchangeName(exchange), compiled)
            case DeleteTopicPermissions(user, vhost, exchange):
                await accounts.delete_topics(user, vhost, exchange)
            case _:
                raise AssertionError(command)

    async def close(self) -> None:
        await self._vhosts.close()
        await self._storage.close()
        await self._tasks.end()
        await self._accounts.settled()
        self._accounts.close()
        self._directory.close()


def metadata_files(directory: Path) -> dict[str, bytes]:
    """Return the files of the metadata by their paths.

    A proof counts the writes of its file, which are others after a kill, and some files are about the process. A kill
    may leave the new content of a file that it did not replace.
    """
    others = {".lock", "node.json", "clean", "meta.json", "meta.checkpoint", "definitions.crc"}
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file() and path.name not in others and path.suffix != ".new"
    }


def meaning_of(files: dict[str, bytes]) -> dict[str, object]:
    """Return what files of the metadata say, however often they were collected.

    A broker that took the checkpoint of another one has no dead entries in its definitions, and no files without
    settings.
    """
    meaning: dict[str, object] = {}
    for path, content in files.items():
        if path.endswith(DEFINITIONS):
            fold = Fold()
            fold.apply_all(read_changes(Path(path), content)[0])
            meaning[path] = sorted(map(encode, fold.changes()))
        elif not path.endswith(".json") or json.loads(content) not in NO_SETTINGS:
            meaning[path] = content
    return meaning


async def files_of_a_single_broker(directory: Path, commands: list[tuple[MetaCommand, int]]) -> dict[str, bytes]:
    """Return the files that one broker has after commands, each with its session."""
    broker = SingleBroker(directory)
    try:
        for command, session in commands:
            await broker.run(command, session)
    finally:
        await broker.close()
    return metadata_files(directory)
