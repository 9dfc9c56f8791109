"""Makes a data directory of an archive, which comes as a stream from anywhere.

The bytes are hostile until the last entry has proven them whole, and their list is hostile even then: only what
`backup_archive` expects is accepted, byte for byte, and files are made in a new folder that becomes the data directory
when everything was checked. One piece is in memory at a time, beside the list.
"""

import os
import shutil
from pathlib import Path

from penstock.model.errors import StorageError, Thing
from penstock.storage.archive_reader import PIECE_BYTES, ArchiveReader, Read
from penstock.storage.backup_archive import SHARDS, ArchivedFile, ArchiveList, header, list_size, not_whole, padding
from penstock.storage.cluster_json import META
from penstock.storage.directory import VHOSTS, directory_name
from penstock.storage.filled import complete_data_directory, filled_data_directory
from penstock.storage.jsonfiles import write_all
from penstock.storage.new_directory import RESTORE
from penstock.storage.records_json import read_vhosts


def is_archive(first: bytes) -> bool:
    """Return whether a file that begins with these bytes, of one block, is an archive of a backup."""
    try:
        return list_size(first, "") > 0
    except StorageError:
        return False


def restore_archive(read: Read, source: str, target: Path) -> list[str]:
    """Make a data directory of an archive, and return the names of its vhosts.

    `source` names the archive in errors. Blocks. Raises StorageError when the archive is not whole or not a backup's,
    and PreconditionFailedError when the new directory holds something.
    """
    archived = ArchiveReader(read, source)
    found = archived.read_list()
    with filled_data_directory(target, RESTORE) as folder:
        _check_space(folder, found)
        for file in found.files:
            archived.expect(header(file.name, file.bytes, found.created_at), f"the entry of {file.name} is another")
            _unpack(archived, file, folder / file.name)
            archived.expect(bytes(padding(file.bytes)), f"other bytes follow {file.name}")
        archived.end(found)
        names = _checked_vhosts(folder, found, source)
        complete_data_directory(folder, names, found.format)
    return names


def _unpack(archived: ArchiveReader, file: ArchivedFile, path: Path) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            left = file.bytes
            while left:
                piece = archived.take(min(left, PIECE_BYTES))
                write_all(descriptor, piece)
                left -= len(piece)
            os.ftruncate(descriptor, file.size)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.filename is None:  # of a write
            error.filename = str(path)
        raise


def _check_space(folder: Path, found: ArchiveList) -> None:
    needed, free = sum(file.bytes for file in found.files), shutil.disk_usage(folder).free
    if needed > free:
        raise StorageError(
            Thing("directory", str(folder.parent)),
            f"is on a disk with {free:,} free bytes, and the archive needs {needed:,}",
            "free space, or name another directory",
        )


def _checked_vhosts(folder: Path, found: ArchiveList, source: str) -> list[str]:
    """Return the names of the vhosts, which the list, `vhosts.json` and the folders must agree on."""
    try:
        names = read_vhosts(folder / VHOSTS)
    except StorageError as error:  # it names a file in a folder that is removed
        raise not_whole(source, f"its {VHOSTS} {error.rule}") from error
    folders = {path.name for path in folder.iterdir() if path.is_dir()}
    if (folder / SHARDS).exists():
        folders.discard(META)
    if names is None or tuple(names) != found.vhosts or folders != {directory_name(name) for name in names}:
        raise not_whole(source, "its list, its vhosts.json and its files are of different virtual hosts")
    return names
