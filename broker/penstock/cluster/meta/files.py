"""The files of the metadata on one broker: the same as without a cluster, written from the committed records.

Before the files change, `meta.json` says up to which position they have everything, and how long the definitions files
are that are about to grow. A start truncates those to that length and applies the records after the position again. The
other files are written whole, from the state, so that writing them again changes nothing.

A record that creates or deletes a virtual host is applied alone and noted before anything else happens: its directory
gets the logs of messages, and no later start may make or delete it again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.cluster.meta.changes import (
    MetaChange,
    Record,
    UserDeleted,
    UserLimitsSet,
    UserPut,
    VhostChanged,
    VhostCreated,
    VhostDeleted,
)
from penstock.cluster.meta.checkpoint import (
    Applied,
    read_applied,
    read_checkpoint,
    write_applied,
    write_checkpoint,
)
from penstock.cluster.meta.state import MetaState
from penstock.cluster.meta.vhost_directories import VhostDirectories
from penstock.metadata import is_stored
from penstock.metadata.effects import Entry
from penstock.model.errors import StorageError, Thing
from penstock.model.names import VhostName
from penstock.storage import DataDirectory
from penstock.storage.cluster_json import CHECKPOINT
from penstock.storage.deletions import remove_password_file
from penstock.storage.directory import APPLIED
from penstock.storage.jsonfiles import json_content, replace_file
from penstock.storage.records_json import users_content, vhosts_content
from penstock.storage.user_records import records_of

CHECKPOINT_RECORDS: Final = 1_000
"""A new checkpoint is written after so many records."""
_ALONE: Final = (VhostCreated, VhostDeleted)
_IN_FILES: Final = (*_ALONE, VhostChanged, UserPut, UserDeleted, UserLimitsSet)
_Records = Sequence[tuple[int, Record]]
LeaveVhost = Callable[[VhostName], Awaitable[None]]
"""Returns when nothing of a virtual host's directory is in use any more."""


class MetaFiles:
    """The files between `open` and `close`.

    Invariant: while it replays, the files are those of the start, and have everything up to `_noted`; then they have
    everything up to `_position`.
    """

    def __init__(self, directory: DataDirectory, noted: Applied, checkpoint_records: int) -> None:
        self._directory = directory
        self._noted = noted
        self._position = noted.position
        self._is_replaying = True
        self._repeated = noted.vhost
        """The virtual host that the next record is about, if a start repeats that record."""
        self._vhosts = VhostDirectories(directory)
        self._checkpoint_records = checkpoint_records
        self._since_checkpoint = 0
        self.leave: LeaveVhost | None = None
        self._checkpoint = 0
        self._checkpointed = asyncio.Event()

    @property
    def checkpoint(self) -> int:
        """The position of the checkpoint on the disk; 0 without one."""
        return self._checkpoint

    @property
    def checkpointed(self) -> asyncio.Event:
        """An event that is set at the next checkpoint."""
        return self._checkpointed

    @property
    def checkpoint_path(self) -> Path:
        return self._directory.path / CHECKPOINT

    @classmethod
    async def open(
        cls, directory: DataDirectory, checkpoint_records: int = CHECKPOINT_RECORDS
    ) -> "tuple[MetaFiles, MetaState]":
        """Return the files, and the state from which the log's records are to be applied. Raises StorageError."""
        path = directory.path
        applied = await asyncio.to_thread(read_applied, path / APPLIED)
        if applied is None:
            _check_is_new(directory)
            applied = Applied(0)
            await asyncio.to_thread(write_applied, path / APPLIED, applied)
        state = await asyncio.to_thread(read_checkpoint, path / CHECKPOINT) or MetaState()
        is_installing = applied.installing is not None and applied.installing == state.position
        if applied.begins_anew and not is_installing:
            state = MetaState()
        files = cls(directory, applied, checkpoint_records)
        files._checkpoint = state.position
        if is_installing:
            await files._install(state)
        elif not applied.begins_anew and state.position == applied.position:
            await files._end_replay(state)
        return files, state

    @property
    def begins_anew(self) -> bool:
        """Whether the files stay as they are, which is of a lost state, until `adopt`."""
        return self._noted.begins_anew

    async def adopt(self, state: MetaState) -> None:
        """Make the files those of a state that has all that is committed. A start completes what was interrupted."""
        await self._note(Applied(0, installing=state.position, begins_anew=True))
        await self._write_checkpoint(state)
        await self._install(state)

    async def install(self, state: MetaState) -> None:
        """Go on from another broker's checkpoint, which is above the state. A start completes what was interrupted.

        The files become those of the checkpoint. They never go back: if they have more already, only the rest of the
        records that they have is skipped.
        """
        if self.begins_anew:
            return
        if self._is_replaying and state.position <= self._position:
            await self._write_checkpoint(state)
            if state.position == self._position:
                await self._end_replay(state)
            return
        before = self._noted if self._is_replaying else Applied(self._position, vhost=self._repeated)
        await self._note(replace(before, installing=state.position))
        await self._write_checkpoint(state)
        await self._install(state)

    async def apply(self, state: MetaState, records: _Records) -> None:
        """Apply committed records to the files and to the state. After a StorageError only a restart goes on."""
        if self.begins_anew:
            for position, record in records:
                state.apply(record, position)
            return
        known = [each for each in records if self._is_replaying and each[0] <= self._position]
        for position, record in known:
            state.apply(record, position)
        if self._is_replaying and state.position == self._position:
            await self._end_replay(state)
        rest = records[len(known) :]
        if rest and self._is_replaying:
            rule = f"lacks the record at {self._position}, which this broker's files have"
            raise StorageError(
                Thing("log", "meta"), rule, "stop this broker and let it copy the metadata of another one"
            )
        while rest:
            count = next((index for index, each in enumerate(rest) if _is_alone(each[1])), len(rest)) or 1
            await self._apply_group(state, rest[:count])
            rest = rest[count:]

    async def close(self) -> None:
        await self._vhosts.close()

    async def _end_replay(self, state: MetaState) -> None:
        """Bring the files to the position that they are noted to have, when the state has it."""
        await self._vhosts.open(state, self._noted.definitions, self._repeated)
        await self._write_vhosts(state)
        await self._write_users(state)
        await self._write_limits(state)
        await self._note(Applied(state.position, vhost=self._repeated))
        self._is_replaying = False

    async def _install(self, state: MetaState) -> None:
        await self._vhosts.install(state, self._repeated)
        await self._write_vhosts(state)
        for name in state.vhosts:
            await self._vhosts.unmark(name)
        await self._write_users(state)
        await self._write_limits(state)
        await self._note(Applied(state.position))
        self._is_replaying, self._repeated = False, None
        self._position, self._since_checkpoint = state.position, 0

    async def _apply_group(self, state: MetaState, group: _Records) -> None:
        changes = [change for _, record in group for change in record.changes]
        if any(isinstance(change, _IN_FILES) for change in changes):
            growing = dict.fromkeys(change.vhost for change in changes if isinstance(change, VhostChanged))
            alone = next((change.name for change in changes if isinstance(change, _ALONE)), None)
            proofs = self._vhosts.proofs(growing.keys() - {alone})
            await self._note(Applied(state.position, proofs, alone))
        for position, record in group:
            for change in record.changes:
                await self._apply_change(state, change)
            state.finish(record, position)
        if any(isinstance(change, UserPut | UserDeleted | VhostDeleted) for change in changes):
            await self._write_users(state)
        if any(isinstance(change, UserLimitsSet | UserDeleted) for change in changes):
            await self._write_limits(state)
        await self._after(state, group)

    async def _after(self, state: MetaState, group: _Records) -> None:
        """Do what must not be done again by a start, after that was noted."""
        self._position, self._repeated = state.position, None
        self._since_checkpoint += len(group)
        has_checkpoint = self._since_checkpoint >= self._checkpoint_records
        dead = self._vhosts.mostly_dead()
        if has_checkpoint or dead or _is_alone(group[-1][1]):
            await self._note(Applied(state.position))
        for name in dead:
            await self._vhosts.collect(name)
        if has_checkpoint:
            await self._write_checkpoint(state)
            self._since_checkpoint = 0

    async def _apply_change(self, state: MetaState, change: MetaChange) -> None:
        """Apply a change to the state and to the files that grow."""
        match change:
            case VhostCreated(name):
                await self._vhosts.make(name, is_repeated=name == self._repeated)
                state.change(change)
                await self._write_vhosts(state)
                await self._vhosts.unmark(name)
            case VhostDeleted(name):
                if self.leave is not None:
                    await self.leave(name)
                await self._vhosts.mark_deleted(name)
                state.change(change)
                await self._write_vhosts(state)
                await self._vhosts.delete(name)
            case VhostChanged(name, session, entries):
                stored: list[Entry] = []
                for entry in entries:  # each is asked about before it is applied
                    if is_stored(state.vhosts[name], entry):
                        stored.append(entry)
                    state.change(VhostChanged(name, session, (entry,)))
                await self._vhosts.append(name, stored)
            case UserDeleted(user):
                state.change(change)
                await asyncio.to_thread(remove_password_file, self._directory.path, user)
            case _:
                state.change(change)

    async def _write_checkpoint(self, state: MetaState) -> None:
        await asyncio.to_thread(write_checkpoint, self.checkpoint_path, state)
        self._checkpoint = state.position
        self._checkpointed.set()
        self._checkpointed = asyncio.Event()

    async def _write_vhosts(self, state: MetaState) -> None:
        await self._write(self._directory.vhosts_file, vhosts_content(state.vhosts))
        await asyncio.to_thread(self._directory.note_vhosts, list(state.vhosts))

    async def _write_users(self, state: MetaState) -> None:
        await self._write(self._directory.users_file, users_content(records_of(state.users)))

    async def _write_limits(self, state: MetaState) -> None:
        """Write the limits of users; without any, no file is made."""
        path = self._directory.user_limits_file
        if state.user_limits or path.exists():
            written = {user: limits.written() for user, limits in state.user_limits.items()}
            await self._write(path, json_content(written))

    async def _write(self, path: Path, content: bytes) -> None:
        await asyncio.to_thread(replace_file, path, content)

    async def _note(self, applied: Applied) -> None:
        await asyncio.to_thread(write_applied, self._directory.path / APPLIED, applied)
        self._noted = applied


def _is_alone(record: Record) -> bool:
    return any(isinstance(change, _ALONE) for change in record.changes)


def _check_is_new(directory: DataDirectory) -> None:
    """Refuse the metadata of a broker without a cluster: the log does not have it."""
    for path in (directory.users_file, directory.vhosts_file):
        if path.exists():
            rule = f"exists, and {APPLIED}, which a broker of a cluster has, does not"
            raise StorageError(Thing("file", str(path)), rule, f"restore {APPLIED}, or name an empty directory")
