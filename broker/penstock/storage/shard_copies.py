"""Copies of the logs of several shards as one copy, laid out as in the directory of their virtual host."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from penstock.native import BackupFile
from penstock.storage.backup import ClosableLog, OpenLog
from penstock.storage.vhost_files import SHARDS, make_shard_directory


class ShardCopies:
    """Implements `storage.backup.ClosableLog`. The logs are in the order of their shards."""

    def __init__(self, logs: Sequence[ClosableLog]) -> None:
        self._logs = logs

    @property
    def position(self) -> int:
        """The position of the first shard."""
        return self._logs[0].position

    def write(self, directory: str) -> None:
        """Write all logs below an empty directory. Blocks. Raises StorageError."""
        for number, log in enumerate(self._logs):
            log.write(str(make_shard_directory(Path(directory), number)))

    def open(self) -> "OpenShardCopies":
        """Open all logs for reading. Blocks. Raises StorageError."""
        with ExitStack() as opened:
            logs = [opened.enter_context(closing(log.open())) for log in self._logs]
            opened.pop_all()
        return OpenShardCopies(logs)

    def close(self) -> None:
        for log in self._logs:
            log.close()


class OpenShardCopies:
    """Implements `storage.backup.OpenLog`."""

    def __init__(self, logs: Sequence[OpenLog]) -> None:
        self._logs = logs
        self._places = [(log, index) for log in logs for index, _ in enumerate(log.files)]
        """Of each file, its log and its number there."""

    @property
    def files(self) -> list[BackupFile]:
        return [
            BackupFile(path=f"{SHARDS}/{number}/{file.path}" if number else file.path, bytes=file.bytes, size=file.size)
            for number, log in enumerate(self._logs)
            for file in log.files
        ]

    def read(self, file: int, at: int, length: int) -> bytes:
        log, index = self._places[file]
        return log.read(index, at, length)

    def close(self) -> None:
        for log in self._logs:
            log.close()
