"""The broker's users: checks credentials, caches the good ones, and changes users one after another.

A change takes effect once it is on the disk. `identity` decides what is allowed, `storage` writes the file.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.identity import Permission, TopicPermission, User, Users, hash_password
from penstock.identity.passwords import SALT_BYTES, is_too_costly
from penstock.kit.logging import logger
from penstock.kit.peers import NOWHERE, Source
from penstock.kit.tasks import spawn
from penstock.model.errors import (
    DiskFullError,
    FaultError,
    NotFoundError,
    NotWrittenError,
    PreconditionFailedError,
    RefusedError,
    StorageError,
    Thing,
)
from penstock.services.deletion_records import DeletionRecords
from penstock.services.password_log_ins import PasswordLogIns
from penstock.services.user_limits import LimitsOfUsers
from penstock.storage import read_users, write_users
from penstock.storage.deletions import remove_password_file
from penstock.storage.deletions_json import DELETIONS, Deletion, Deletions, Kind
from penstock.storage.limits_json import USER_LIMITS
from penstock.storage.user_records import records_of, user_of

_log = logger("accounts")
_THING = Thing("file", "users.json")
# Freeing a compiled pattern takes about 10 us; on a thread, one by one, others run in between.
FREED_ON_LOOP_MAX = 100
# Among many users a change takes about 100 us; calls in between are not delayed by more than this many.
DECIDED_AT_ONCE_MAX = 100
ForgetUser = Callable[[str], Awaitable[None]]
_Change = Callable[[Users], Users]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A change that waits. `concerns_deleted` is of changes that the broker makes by itself."""

    change: _Change
    done: "asyncio.Future[None]"
    concerns_deleted: bool
    is_forced: bool


class Accounts:
    """One task changes the users, in the order asked for; readers see the last value on the disk."""

    def __init__(self, path: Path, users: Users, limits: LimitsOfUsers, deletions: Deletions) -> None:
        self._path = path
        self._users = users.settled()
        self._limits = limits
        self._deletions = DeletionRecords(deletions)
        self._deleting: set[str] = set()
        self.passwords = PasswordLogIns(lambda: self._users, self._rehash)
        self._rehashing: set[str] = set()
        self._waiting: list[_Waiting] = []
        self._writer: asyncio.Task[None] | None = None
        self._has_vhost: Callable[[str], bool] = lambda _: True

    def know_vhosts(self, has_vhost: Callable[[str], bool]) -> None:
        """Add permissions in these vhosts alone from now on.

        A vhost is unknown before its deletion deletes the permissions in it.
        """
        self._has_vhost = has_vhost

    @classmethod
    def open(
        cls,
        path: Path,
        default_user: str,
        default_password: str,
        limits: LimitsOfUsers | None = None,
        deletions: Deletions | None = None,
    ) -> "Accounts":
        """Read the users, or create the first one with every permission on "/".

        Limits and deletions are those of the same directory, unless they are open already. Blocks. Raises StorageError.
        """
        limits = limits or LimitsOfUsers.open(path.with_name(USER_LIMITS))
        deletions = deletions or Deletions.open(path.with_name(DELETIONS))
        records = read_users(path)
        if records is not None:
            users = Users(user_of(path, record) for record in records)
            _warn_of_costly_digests(users)
            return cls(path, users, limits, deletions)
        digest = hash_password(default_password, os.urandom(SALT_BYTES))
        everything = Permission.compile(".*", ".*", ".*")
        users = Users().put(default_user, ["administrator"], digest).set_permission(default_user, "/", everything)
        write_users(path, records_of(users))
        return cls(path, users, limits, deletions)

    def close(self) -> None:
        self.passwords.close()

    async def settled(self) -> None:
        """Wait until nothing is being written."""
        if self._writer is not None:
            await asyncio.wait([self._writer])
        await self._deletions.settled()

    # ------------------------------------------------------------ who is it

    async def log_in(self, name: str, password: str, *, source: Source = NOWHERE) -> User:
        """Check a user's credentials.

        A wrong password and an unknown user return the same error, with the time at which to answer it.
        """
        return await self.passwords.log_in(name, password, source=source)

    def find(self, name: str) -> User | None:
        """Return a user that another authority authenticated, for example by signing a certificate."""
        return self._users.find(name)

    async def _rehash(self, name: str, was: str, password: str) -> str:
        """Replace another broker's password hash at the first log-in that proves the password.

        Return the hash that is valid now. The log-in succeeds even if the new hash cannot be written.
        """
        if name in self._rehashing:
            return was
        self._rehashing.add(name)
        try:
            ours = await self.passwords.hashed(password)
            await self._change(lambda users: users.rehash(name, was, ours), concerns_deleted=True)
        except FaultError as fault:
            _log.warning("a password's digest could not be renewed", user=name, fault=str(fault))
            return was
        finally:
            self._rehashing.discard(name)
        return ours

    # ------------------------------------------------------------ changes

    def users(self) -> list[User]:
        return self._users.all()

    async def put_user(
        self,
        name: str,
        password: str | None,
        tags: Sequence[str] | None,
        *,
        force: bool = False,
        is_random: bool = False,
    ) -> bool:
        """Return whether the user is new. `is_random`: no one can guess the password, so that its digest is cheap."""
        digest, algorithm = await self.passwords.digest_of(password, is_random=is_random)
        is_new = False

        def put(users: Users) -> Users:
            nonlocal is_new
            is_new = users.find(name) is None  # another call may have added it by the time that this one is decided
            return users.put(name, tags, digest, algorithm, force=force)

        await self._change(put, is_forced=force)
        return is_new

    async def delete_user(self, name: str, *, force: bool = False, forget: ForgetUser | None = None) -> None:
        """Delete a user with permissions and limits, so that a user of the same name made later inherits nothing.

        `forget` deletes what the user has elsewhere, as the last step. A start completes an interrupted deletion,
        and so does another call when a step failed.
        """
        if name in self._deleting:
            raise PreconditionFailedError(
                Thing("user", name), "is being deleted by another call", "retry when it has ended"
            )
        self._deleting.add(name)
        try:
            await self._delete(name, force=force)
            if forget is not None:
                await forget(name)
            await self._deletions.end(Deletion(Kind.USER, name))
        finally:
            self._deleting.discard(name)

    async def _delete(self, name: str, *, force: bool) -> None:
        """Begin a deletion, and delete what is in the files of users."""
        deletion = Deletion(Kind.USER, name)
        is_begun = deletion in self._deletions.begun()
        if not is_begun:
            self._users.check_delete(name, force=force)  # a deletion that is refused has not begun
            if not force and name in self._users.administrators:
                self._check_administrators(self._users, self._users.delete(name))
            await self._deletions.begin(deletion)
        try:
            await self._change(
                lambda users: users if users.find(name) is None else users.delete(name, force=force), is_forced=force
            )
        except (RefusedError, NotWrittenError, DiskFullError):
            if not is_begun:  # nothing was deleted
                await self._deletions.end(deletion)
            raise
        await self._limits.forget(name)
        await asyncio.to_thread(remove_password_file, self._path.parent, name)

    async def complete_deletions(self, forget: ForgetUser) -> None:
        """Complete the deletions that an earlier run began, whose steps on files the start has done.

        One that fails stays begun: the next start completes it, or another call of `delete_user`.
        """
        for deletion in self._deletions.begun():
            try:
                await forget(deletion.name)
                await self._deletions.end(deletion)
            except FaultError as fault:
                _log.warning("deletion not completed", kind=deletion.kind.value, name=deletion.name, fault=str(fault))
            else:
                _log.info("deletion completed", kind=deletion.kind.value, name=deletion.name)

    async def set_permission(self, name: str, vhost: str, permission: Permission) -> None:
        await self._change(lambda users: users.set_permission(name, vhost, permission))

    async def delete_permission(self, name: str, vhost: str) -> None:
        await self._change(lambda users: users.delete_permission(name, vhost))

    async def set_topic(self, name: str, vhost: str, exchange: str, topic: TopicPermission) -> None:
        await self._change(lambda users: users.set_topic(name, vhost, exchange, topic))

    async def delete_topics(self, name: str, vhost: str, exchange: str | None) -> None:
        await self._change(lambda users: users.delete_topics(name, vhost, exchange))

    async def forget_vhost(self, vhost: str) -> None:
        """Delete every permission in a vhost, those too that are being written."""
        await self._change(lambda users: users.without_vhost(vhost), concerns_deleted=True)

    async def change(self, change: Callable[[Users], Users]) -> None:
        """Several changes in one writing, for imports: all of it or nothing."""
        await self._change(change)

    async def _change(self, change: _Change, *, concerns_deleted: bool = False, is_forced: bool = False) -> None:
        """`concerns_deleted` lets the broker's own changes reach users whose deletion has begun."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(change, done, concerns_deleted, is_forced))
        if self._writer is None:
            self._writer = spawn(self._write_waiting(), name="users")
        await done

    async def _write_waiting(self) -> None:
        round_: list[_Waiting] = []
        try:
            while self._waiting:
                round_, self._waiting = self._waiting, []
                await self._write_round(round_)
        finally:
            self._writer = None
            for waiting in [*round_, *self._waiting]:  # none is left unless a bug ended this task
                _fail(waiting.done, StorageError(_THING, "could not be changed", "see the broker's log"))
            self._waiting = []

    async def _write_round(self, round_: list[_Waiting]) -> None:
        users, decided = self._users, []
        touched: set[str] = set()
        begun = {deletion.name for deletion in self._deletions.begun()}
        for count, waiting in enumerate(round_, 1):
            if count % DECIDED_AT_ONCE_MAX == 0:
                await asyncio.sleep(0)
            try:
                changed = waiting.change(users)
                self._check(waiting, users, changed, begun)
            except RefusedError as refusal:
                _fail(waiting.done, refusal)
                continue
            touched |= changed.touched
            users = changed.settled()
            decided.append(waiting.done)
        try:
            if users is not self._users:
                await asyncio.to_thread(_write, self._path, users)
        except FaultError as fault:
            for done in decided:
                _fail(done, fault)
            return
        patterns = _replaced_patterns(self._users, users, touched)
        self._users = users
        self.passwords.forget_decoys()
        for done in decided:
            if not done.done():
                done.set_result(None)
        if len(patterns) > FREED_ON_LOOP_MAX:
            await asyncio.to_thread(_free, patterns)

    def _check(self, waiting: _Waiting, users: Users, changed: Users, begun: Collection[str]) -> None:
        """Refuse a change that would outlive a deletion, or leave no administrator once all deletions have ended."""
        if waiting.concerns_deleted:
            return
        for name in changed.touched:
            user, known = changed.find(name), users.find(name)
            if user is None:
                continue
            if name in begun and user != known:
                way_out = "retry when that has ended" if name in self._deleting else "delete it again, then make it"
                raise PreconditionFailedError(Thing("user", name), "is being deleted", way_out)
            self._check_vhosts(user, known)
        if not waiting.is_forced and users.administrators != changed.administrators:
            self._check_administrators(users, changed)

    def _check_administrators(self, users: Users, changed: Users) -> None:
        """Refuse a change when a restart, which completes all deletions, would find no administrator.

        A deletion that fails half-way is not undone.
        """
        leaving = self._deleting.union(deletion.name for deletion in self._deletions.begun())
        gone = users.administrators - changed.administrators
        if gone and not changed.administrators - leaving:
            raise PreconditionFailedError(
                Thing("user", min(gone)),
                "is the only user with the tag administrator that is not being deleted",
                "add another administrator first, or use force",
            )

    def _check_vhosts(self, user: User, known: User | None) -> None:
        """Refuse a permission in a vhost that was deleted while the change waited: a new vhost would inherit it."""
        held = set() if known is None else {*known.permissions, *known.topics}
        for vhost in {*user.permissions, *user.topics} - held:
            if not self._has_vhost(vhost):
                raise NotFoundError(Thing("vhost", vhost), "create it first or check the name")


def _warn_of_costly_digests(users: Users) -> None:
    for user in users.all():
        if is_too_costly(user.password_hash, user.hashing_algorithm):
            _log.warning("a password digest is too costly to check; set the password again", user=user.name)


def _replaced_patterns(before: Users, after: Users, touched: Iterable[str]) -> list[object]:
    """Return the patterns of users or virtual hosts that changed: the list has the last reference to them."""
    held: list[object] = []
    for name in touched:
        user, now = before.find(name), after.find(name)
        if user is None or now is user:
            continue
        held += (one for vhost, one in user.permissions.items() if now is None or vhost not in now.permissions)
        for vhost, by_exchange in user.topics.items():
            if now is None or now.topics.get(vhost) is not by_exchange:
                held += by_exchange.values()
    return held


def _free(held: list[object]) -> None:
    while held:
        held.pop()


def _write(path: Path, users: Users) -> None:
    write_users(path, records_of(users))


def _fail(done: "asyncio.Future[None]", error: Exception) -> None:
    if not done.done():
        done.set_exception(error)
