"""The directories of virtual hosts that a cluster's metadata makes, appends to and deletes on one broker."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from penstock.cluster.meta.state import MetaState
from penstock.metadata import VhostTopology, entries_of
from penstock.metadata.effects import Entry, PersistDefaultQueueType, PersistLimits, PersistPolicies, SettingsEntry
from penstock.model.errors import StorageError, Thing
from penstock.model.limits import NO_LIMITS
from penstock.model.names import VhostName
from penstock.model.records import QueueKind
from penstock.storage import Change, DataDirectory, DefinitionsFile, read_vhosts
from penstock.storage.definitions_amqp import create_definitions, truncate_definitions
from penstock.storage.definitions_proof import Proof
from penstock.storage.entries import change_of, record_of
from penstock.storage.jsonfiles import json_content, replace_file
from penstock.storage.limits_json import LIMITS
from penstock.storage.policies_json import OPERATOR_POLICIES, POLICIES, policies_content
from penstock.storage.settings_json import SETTINGS, settings_content
from penstock.storage.vhost_files import (
    DEFINITIONS,
    create_vhost_directory,
    delete_vhost_directory,
    is_marked_deleted,
    mark_deleted,
    unmark_deleted,
)


class VhostDirectories:
    """Invariant: each virtual host of the state has its definitions file open, from `open` or `install` on."""

    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._files: dict[VhostName, DefinitionsFile] = {}

    async def open(self, state: MetaState, proofs: Mapping[str, Proof], changing: VhostName | None) -> None:
        """Open the definitions of all virtual hosts, truncated where a proof says how they were. Raises StorageError.

        The creation or deletion of `changing` was interrupted and is about to be repeated. Settings are written as the
        state has them, and so is a directory that is missing: its replica begins anew.
        """
        for name in await self._named():
            if name not in state.vhosts and name != changing:
                rule, way_out = "is in vhosts.json, and the cluster has no such virtual host", "remove it there"
                raise StorageError(Thing("vhost", name), rule, way_out)
        for name, vhost in state.vhosts.items():
            if name == changing:
                continue
            path = self._directory.vhost_directory(name)
            if await asyncio.to_thread(_is_missing, path):
                await self._make_of(vhost, path)
                continue
            if path.name in proofs:
                await asyncio.to_thread(truncate_definitions, path / DEFINITIONS, proofs[path.name])
            await self._open(name)
            for settings in _settings_of(vhost):
                await asyncio.to_thread(_write_settings, path, name, settings, is_kept=True)

    def proofs(self, names: Iterable[VhostName]) -> dict[str, Proof]:
        """Return what the definitions of virtual hosts are now, by their directories."""
        return {self._directory.vhost_directory(name).name: self._files[name].proof for name in names}

    async def make(self, name: VhostName, *, is_repeated: bool) -> None:
        """Make a virtual host's directory, marked until it is named.

        One that an interrupted creation left has no messages yet, because nothing used it, and is made anew.
        """
        path = self._directory.vhost_directory(name)
        if is_repeated and path.is_dir():
            await asyncio.to_thread(mark_deleted, path)
        await asyncio.to_thread(create_vhost_directory, path, name)
        await self._open(name)

    async def unmark(self, name: VhostName) -> None:
        await asyncio.to_thread(unmark_deleted, self._directory.vhost_directory(name))

    async def mark_deleted(self, name: VhostName) -> None:
        """Close the definitions and mark the directory, so that a start deletes it once it is not named."""
        file = self._files.pop(name, None)
        if file is not None:
            await file.close()
        path = self._directory.vhost_directory(name)
        if path.is_dir():
            await asyncio.to_thread(mark_deleted, path)

    async def delete(self, name: VhostName) -> None:
        await asyncio.to_thread(delete_vhost_directory, self._directory.vhost_directory(name))

    async def append(self, name: VhostName, entries: Sequence[Entry]) -> None:
        """Append a decision's entries: those of the definitions file with one write, settings to their files."""
        settings = [entry for entry in entries if isinstance(entry, SettingsEntry)]
        changes = [change_of(entry) for entry in entries if not isinstance(entry, SettingsEntry)]
        if changes:
            await self._files[name].append(changes)
        for each in settings:
            await asyncio.to_thread(_write_settings, self._directory.vhost_directory(name), name, each)

    def mostly_dead(self) -> list[VhostName]:
        """Return the virtual hosts whose definitions are to be collected."""
        return [name for name, file in self._files.items() if file.is_mostly_dead]

    async def collect(self, name: VhostName) -> None:
        await self._files[name].collect()

    async def install(self, state: MetaState, changing: VhostName | None) -> None:
        """Make the directories of a state, and delete all others. Logs of virtual hosts that stay are kept.

        New directories are marked until they are named, so that a start may make them anew. The creation or deletion of
        `changing` was interrupted.
        """
        await self.close()
        named = await self._named()
        for name in {*named, *([] if changing is None else [changing])}:
            if name not in state.vhosts:
                path = self._directory.vhost_directory(name)
                if path.is_dir():
                    await asyncio.to_thread(mark_deleted, path)
                await self.delete(name)
        for name, vhost in state.vhosts.items():
            path = self._directory.vhost_directory(name)
            if is_marked_deleted(path):
                await self.delete(name)
            if name not in named or not path.is_dir():
                await asyncio.to_thread(create_vhost_directory, path, name)
            await self._fill(vhost, path)

    async def close(self) -> None:
        for file in self._files.values():
            await file.close()
        self._files = {}

    async def _make_of(self, vhost: VhostTopology, path: Path) -> None:
        """Make a directory, marked until it is complete."""
        if is_marked_deleted(path):
            await self.delete(vhost.vhost)
        await asyncio.to_thread(create_vhost_directory, path, vhost.vhost)
        await self._fill(vhost, path)
        await self.unmark(vhost.vhost)

    async def _fill(self, vhost: VhostTopology, path: Path) -> None:
        """Write what a state has of a virtual host to its directory."""
        entries = [entry for entry in entries_of(vhost) if not isinstance(entry, SettingsEntry)]
        await asyncio.to_thread(create_definitions, path / DEFINITIONS, map(change_of, entries))
        for settings in _settings_of(vhost):
            await asyncio.to_thread(_write_settings, path, vhost.vhost, settings, is_kept=True)
        await self._open(vhost.vhost)

    async def _named(self) -> list[VhostName]:
        names = await asyncio.to_thread(read_vhosts, self._directory.vhosts_file)
        return [VhostName(name) for name in names or []]

    async def _open(self, name: VhostName) -> None:
        path = self._directory.vhost_directory(name) / DEFINITIONS
        self._files[name], _ = await asyncio.to_thread(_open_definitions, path)


def _is_missing(path: Path) -> bool:
    """Return whether there is no directory, or the rest of one that a start began to make."""
    return is_marked_deleted(path) or not ((path / DEFINITIONS).exists() or any(path.glob("msgs.*")))


def _open_definitions(path: Path) -> tuple[DefinitionsFile, list[Change]]:
    return DefinitionsFile.open(path, is_proven=True, collects=False)


def _settings_of(vhost: VhostTopology) -> tuple[SettingsEntry, ...]:
    return (
        PersistPolicies(tuple(vhost.policies.values())),
        PersistPolicies(tuple(vhost.operator_policies.values()), is_operator=True),
        PersistLimits(vhost.limits),
        PersistDefaultQueueType(vhost.default_queue_type),
    )


def _write_settings(path: Path, vhost: VhostName, settings: SettingsEntry, *, is_kept: bool = False) -> None:
    """Write a file of settings. `is_kept`: one that is so already stays, and an empty one is not made."""
    match settings:
        case PersistPolicies(policies, is_operator):
            file = path / (OPERATOR_POLICIES if is_operator else POLICIES)
            content = policies_content(vhost, [record_of(policy) for policy in policies])
            is_empty = not policies
        case PersistLimits(limits):
            file, content, is_empty = path / LIMITS, json_content(limits.written()), limits == NO_LIMITS
        case PersistDefaultQueueType(kind):
            file, content, is_empty = path / SETTINGS, settings_content(kind.value), kind is QueueKind.CLASSIC
    if not is_kept or file.exists() or not is_empty:
        replace_file(file, content)
