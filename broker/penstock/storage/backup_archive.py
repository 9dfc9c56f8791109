"""The format of a backup in one file: a tar archive whose first entry lists all files and whose last proves it whole.

Every header follows from the list: an archive is read by comparing each header with the one that must stand there, so
that a name, a link or a size that the list does not have is refused before anything of it is used. The last entry holds
the SHA-256 of all bytes before its header. This module does no I/O.
"""

import json
import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeGuard

from penstock.model.errors import StorageError, Thing
from penstock.storage.cluster_json import CHECKPOINT, META
from penstock.storage.deletions_json import DELETIONS
from penstock.storage.directory import FORMATS
from penstock.storage.jsonfiles import JSON_BYTES_MAX, parse_json
from penstock.storage.limits_json import USER_LIMITS

BLOCK: Final = tarfile.BLOCKSIZE
LIST: Final = "penstock-backup.json"
PROOF: Final = "penstock-backup.sha256"
LIST_BYTES_MAX: Final = JSON_BYTES_MAX
ZEROS_MAX: Final = 1 << 30
"""The most zeros that follow what is stored of a file: the largest segment."""
TOP_FILES: Final = frozenset({"users.json", USER_LIMITS, DELETIONS, "vhosts.json"})
SHARDS: Final = "shards.json"
"""The file that lists the shards of a cluster, in a backup of one."""
_OF_CLUSTER: Final = frozenset({SHARDS, CHECKPOINT})

_NAME_LENGTH_MAX: Final = 100
_PARTS_MAX: Final = 4
_PART = re.compile(r"[A-Za-z0-9._-]+")
_FOLDER = re.compile(r"[0-9a-f]{40}")
_KEYS: Final = {"format", "version", "data_id", "created_at", "vhosts", "files"}
_REQUEST: Final = "request_id"
_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_END: Final = bytes(2 * BLOCK)
TRAILER_BYTES: Final = 2 * BLOCK + len(_END)


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """A file: `bytes` of it are in the archive, and zeros follow them up to its `size`."""

    name: str
    bytes: int
    size: int


@dataclass(frozen=True, slots=True)
class ArchiveList:
    """The first entry: the format of the logs, what wrote the archive, when (seconds since 1970), and what is in it.

    `request_id` is the client's, empty without one.
    """

    format: int
    version: str
    data_id: str
    created_at: int
    vhosts: tuple[str, ...]
    files: tuple[ArchivedFile, ...]
    request_id: str = ""

    def encoded(self) -> bytes:
        """Return the archive's first bytes: the header of the list, and the list."""
        files = [
            {"name": file.name, "bytes": file.bytes} | ({} if file.size == file.bytes else {"size": file.size})
            for file in self.files
        ]
        content = {
            "format": self.format,
            "version": self.version,
            "data_id": self.data_id,
            "created_at": datetime.fromtimestamp(self.created_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "vhosts": list(self.vhosts),
            "files": files,
        } | ({_REQUEST: self.request_id} if self.request_id else {})
        text = (json.dumps(content, ensure_ascii=False) + "\n").encode()
        return header(LIST, len(text), self.created_at) + text + bytes(padding(len(text)))

    def total_bytes(self) -> int:
        """Return the size of the whole archive."""
        stored = sum(BLOCK + file.bytes + padding(file.bytes) for file in self.files)
        return len(self.encoded()) + stored + TRAILER_BYTES


def header(name: str, size: int, time: int) -> bytes:
    """Return the header of a file's entry: one block, as the same arguments always make it."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mtime, entry.mode = size, time, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> int:
    """Return how many zeros follow a file's content in the archive."""
    return -size % BLOCK


def trailer(digest: str, time: int) -> bytes:
    """Return the last bytes of the archive; `digest` is the SHA-256 of all before them, in hexadecimal."""
    content = f"{digest}\n".encode()
    return header(PROOF, len(content), time) + content + bytes(padding(len(content))) + _END


def list_size(block: bytes, source: str) -> int:
    """Return the size of the list, whose header is the archive's first block. Raises StorageError."""
    try:
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        raise not_an_archive(source) from error
    if entry.name != LIST or not 0 < entry.size <= LIST_BYTES_MAX or header(LIST, entry.size, _time(entry)) != block:
        raise not_an_archive(source)
    return entry.size


def decoded_list(content: bytes, source: str) -> ArchiveList:
    """Return the list of an archive. Raises StorageError for one that names what no backup has."""
    found = parse_json(content, Path(source))
    if isinstance(found, dict) and found.get("format") not in FORMATS:
        rule = f"has the format {found.get('format')!r}, and this version knows {FORMATS[0]} to {FORMATS[-1]}"
        raise _refused(source, rule, "restore it with the version that wrote it, or a newer one")
    if not isinstance(found, dict) or set(found) - {_REQUEST} != _KEYS or not isinstance(found["files"], list):
        raise _refused(source, f"has no valid {LIST}")
    request = found.get(_REQUEST)
    if request is not None and not is_request_id(request):
        raise _refused(source, f"has no valid {LIST}")
    texts = [found["version"], found["data_id"], *found["vhosts"]] if isinstance(found["vhosts"], list) else [None]
    if not all(isinstance(text, str) for text in texts):
        raise _refused(source, f"has no valid {LIST}")
    try:
        created = datetime.strptime(str(found["created_at"]), "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError as error:
        raise _refused(source, "has no valid time") from error
    files = tuple(_file(entry, source) for entry in found["files"])
    _check_names([file.name for file in files], source)
    about = (found["format"], found["version"], found["data_id"], int(created.timestamp()), tuple(found["vhosts"]))
    return ArchiveList(*about, files, request or "")


def is_request_id(text: object) -> TypeGuard[str]:
    """Return whether an archive may name a request so."""
    return isinstance(text, str) and _REQUEST_ID.fullmatch(text) is not None


def is_archivable(name: str) -> bool:
    """Return whether a file of this name may be in an archive."""
    parts = name.split("/")
    is_plain = all(_PART.fullmatch(part) and part not in (".", "..") for part in parts)
    is_folder = parts[0] == META or _FOLDER.fullmatch(parts[0]) is not None
    is_placed = name in TOP_FILES | _OF_CLUSTER if len(parts) == 1 else is_folder
    return is_plain and is_placed and len(parts) <= _PARTS_MAX and len(name) <= _NAME_LENGTH_MAX


def check_restorable(archive: ArchiveList) -> None:
    """Raise StorageError for a list that a restore would refuse: such a backup must not be called complete."""
    encoded = archive.encoded()
    try:
        size = list_size(encoded[:BLOCK], LIST)
        found = decoded_list(encoded[BLOCK : BLOCK + size], LIST)
    except StorageError as error:
        cause = f"could not be restored: its archive {error.rule}"
        raise StorageError(Thing("backup", archive.data_id), cause, "report this") from error
    assert found == archive, "the list is read as another one"


def folders(names: Iterable[str]) -> Iterator[str]:
    """Yield the folders that files of these names are in, some more than once."""
    for name in names:
        parts = name.split("/")
        yield from ("/".join(parts[:count]) for count in range(1, len(parts)))


def not_an_archive(source: str) -> StorageError:
    return _refused(source, "is not an archive of a backup", "name one that `penstock backup download` made")


def not_whole(source: str, rule: str) -> StorageError:
    return _refused(source, f"is not whole: {rule}", "copy it again, or use another one; nothing was restored")


def _time(entry: tarfile.TarInfo) -> int:
    return int(entry.mtime)


def _file(entry: object, source: str) -> ArchivedFile:
    if not isinstance(entry, dict) or not {"name", "bytes"} <= set(entry) <= {"name", "bytes", "size"}:
        raise _refused(source, f"has no valid {LIST}")
    name, count = entry["name"], entry["bytes"]
    size: object = entry.get("size", count)
    if not isinstance(name, str) or not _is_count(count) or not _is_count(size):
        raise _refused(source, f"has no valid {LIST}")
    if not count <= size <= count + ZEROS_MAX:
        raise _refused(source, f"has the file {name!r} with a size that no file of a backup has")
    return ArchivedFile(name, count, size)


def _is_count(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 62


def _check_names(names: list[str], source: str) -> None:
    for name in names:
        if not is_archivable(name):
            raise _refused(source, f"has a file of the name {name[:200]!r}, which no backup has")
    if len(set(names)) != len(names) or not set(names).isdisjoint(folders(names)):
        raise _refused(source, "has two files of one name")
    if not {"users.json", "vhosts.json"} <= set(names):
        raise _refused(source, "has no users.json or no vhosts.json")
    has_metadata = any(name.startswith(f"{META}/") for name in names)
    is_of_cluster = has_metadata and set(names) >= _OF_CLUSTER
    if not is_of_cluster and (has_metadata or not _OF_CLUSTER.isdisjoint(names)):
        raise _refused(source, f"has a part of {SHARDS}, {CHECKPOINT} and {META}, which belong together")


def _refused(source: str, rule: str, way_out: str = "use another backup; nothing was restored") -> StorageError:
    return StorageError(Thing("archive", source), rule, way_out)
