"""Archives of backups for tests: of one vhost with plain files, or made by hand."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

from penstock.native import BackupFile
from penstock.storage import DataDirectory, VhostCopy, copy_users, open_backup_stream, write_users, write_vhosts
from penstock.storage.backup_archive import LIST, header, padding, trailer
from penstock.storage.definitions_amqp import create_definitions
from penstock.storage.definitions_proof import PROOF
from penstock.storage.vhost_files import create_vhost_directory

TIME = 1_700_000_000
SEGMENT = b"records" * 300_000


class FilesOfLog:
    """Two files in memory; the second is followed by zeros."""

    def __init__(self) -> None:
        self.contents = [SEGMENT, b"active"]
        self.files = [
            BackupFile(path="msgs.0000000001", bytes=len(SEGMENT), size=len(SEGMENT)),
            BackupFile(path="shards/7/msgs.0000000001", bytes=6, size=4_096),
        ]
        self.is_closed = False

    def read(self, file: int, at: int, length: int) -> bytes:
        assert not self.is_closed
        return self.contents[file][at : at + length]

    def close(self) -> None:
        self.is_closed = True


class ReadableLog:
    position = 7

    def __init__(self) -> None:
        self.opened = FilesOfLog()

    def write(self, directory: str) -> None:
        raise AssertionError(f"not written to {directory}")

    def open(self) -> FilesOfLog:
        return self.opened


class ReadableDefinitions:
    """The definitions of a vhost, as a new file in a folder has them."""

    def __init__(self, folder: Path) -> None:
        create_definitions(folder / "definitions.amqp")
        self._contents = ((folder / "definitions.amqp").read_bytes(), (folder / PROOF).read_bytes())

    @property
    def sizes(self) -> tuple[int, int]:
        return len(self._contents[0]), len(self._contents[1])

    def write(self, path: Path) -> None:
        raise AssertionError(f"not written to {path}")

    def read(self) -> tuple[bytes, bytes]:
        return self._contents


def archive_of_one_vhost(
    folder: Path,
    vhost: str = "a/b",
    log: ReadableLog | None = None,
    part: int = 1 << 20,
    prepare: Callable[[Path], None] = lambda _: None,
    request_id: str = "",
) -> bytes:
    """Return the archive of a data directory with one vhost, read in parts of that size.

    `prepare` is called with the vhost's directory.
    """
    with DataDirectory.open(folder / "data") as data:
        write_users(data.users_file, [])
        write_vhosts(data.vhosts_file, [vhost])
        create_vhost_directory(data.vhost_directory(vhost), vhost)
        prepare(data.vhost_directory(vhost))
        (folder / "definitions").mkdir()
        copy = VhostCopy(vhost, ReadableDefinitions(folder / "definitions"), log or ReadableLog())
        stream = open_backup_stream(data, [copy], copy_users(data), ("1.2.3", TIME), request_id=request_id)
        parts = iter(lambda: stream.read(part), b"")
        found = b"".join(parts)
        assert stream.total_bytes == len(found)
        assert stream.sha256 == hashlib.sha256(found).hexdigest()
        stream.close()
    return found


def archive_by_hand(content: dict[str, object], files: list[tuple[str, bytes]]) -> bytes:
    """Return an archive with this list, whatever it says, and a proof that holds for it."""
    text = json.dumps(content).encode()
    whole = header(LIST, len(text), TIME) + text + bytes(padding(len(text)))
    for name, body in files:
        whole += header(name, len(body), TIME) + body + bytes(padding(len(body)))
    return whole + trailer(hashlib.sha256(whole).hexdigest(), TIME)
