"""The folder of an archive, and how its files are created: whole or not at all, even after a power failure.

Invariants: the manifest is replaced in one step, after everything that it names is on the disk. One process at
a time writes an archive; any number can read it meanwhile.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from penstock.archive.errors import ArchiveError
from penstock.archive.manifest import Manifest, parse_manifest

__all__ = ["MANIFEST", "Step", "folder_of", "hold", "read_manifest", "remove_strays", "replace_file", "write_manifest"]

# The underscore hides it from tools that read the folder as a data set.
MANIFEST = "_manifest.json"
MANIFEST_BYTES_MAX = 256 * 2**20
# Folder of unfinished files, also hidden.
UNFINISHED = ".unfinished"
NAME_BYTES_MAX = 200

# Called with the name of each step that was taken: tests end the process there.
Step = Callable[[str], None]


def folder_of(archive: Path, vhost: str, stream: str) -> Path:
    """Return a stream's folder: always two levels below the archive, whatever the names, which come from users."""
    return archive / file_name(vhost) / file_name(stream)


def file_name(name: str) -> str:
    """Return a name as a file name that is neither hidden nor skipped by data set readers. Raises ArchiveError."""
    quoted = quote(name, safe="")
    if quoted[:1] in {".", "_"}:
        quoted = f"%{ord(quoted[0]):02X}{quoted[1:]}"
    if not quoted or len(quoted) > NAME_BYTES_MAX:
        raise ArchiveError(
            f"'{name[:60]}' has {len(quoted)} characters as a file name; at most {NAME_BYTES_MAX} can be"
        )
    return quoted


def read_manifest(folder: Path, vhost: str, stream: str) -> Manifest:
    """Read the manifest; return an empty one when there is none yet. Raises ArchiveError and OSError."""
    path = folder / MANIFEST
    try:
        with path.open("rb") as file:
            content = file.read(MANIFEST_BYTES_MAX + 1)
    except FileNotFoundError:
        return Manifest(vhost, stream)
    if len(content) > MANIFEST_BYTES_MAX:
        raise ArchiveError(f"{path} has more than {MANIFEST_BYTES_MAX} bytes; restore a copy of it")
    manifest = parse_manifest(content, str(path))
    if (manifest.vhost, manifest.stream) != (vhost, stream):
        raise ArchiveError(
            f"{path} is of stream '{manifest.stream}' in vhost '{manifest.vhost}', not of '{stream}' in '{vhost}'; "
            "move the folder back to where it was"
        )
    return manifest


def write_manifest(folder: Path, manifest: Manifest, step: Step) -> None:
    """Write the manifest. Returns when it is on the disk."""
    unfinished = folder / (UNFINISHED + MANIFEST)
    with unfinished.open("wb") as file:
        file.write(manifest.to_json())
        file.flush()
        os.fsync(file.fileno())
    step("manifest written")
    replace_file(unfinished, folder / MANIFEST)
    step("manifest replaced")


def replace_file(unfinished: Path, path: Path) -> None:
    """Rename a synced file to its final name, durably."""
    unfinished.replace(path)
    sync_folder(path.parent)


def make_folder(folder: Path) -> None:
    """Make a folder and its parents, durably."""
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for each in missing:
        sync_folder(each.parent)


def remove_strays(folder: Path, manifest: Manifest) -> list[Path]:
    """Remove files that an earlier writer left and the manifest does not name. Call it while the folder is held."""
    named = manifest.paths()
    strays = [
        *folder.glob(f"{UNFINISHED}*"),
        *folder.glob(f"date=*/{UNFINISHED}*"),
        *(path for path in folder.glob("date=*/*.parquet") if path.relative_to(folder).as_posix() not in named),
    ]
    for path in strays:
        path.unlink()
    return strays


@contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make the folder and lock out other writers; a killed writer releases the lock. Raises ArchiveError."""
    make_folder(folder)
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(f"another process writes the archive {folder}; wait for it or stop it") from None
        yield
    finally:
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
