"""Copies of the logs of several shards are one copy, laid out as in the directory of their virtual host."""

from pathlib import Path

import pytest

from penstock.native import BackupFile
from penstock.storage.shard_copies import ShardCopies

CONTENTS = (b"first", b"second", b"third")


class FakeLog:
    """A log of one file."""

    def __init__(self, content: bytes, *, fails: bool = False) -> None:
        self.position = len(content)
        self.content = content
        self.fails = fails
        self.is_closed = False

    @property
    def files(self) -> list[BackupFile]:
        return [BackupFile(path="msgs.0000000001", bytes=len(self.content), size=64)]

    def write(self, directory: str) -> None:
        (Path(directory) / "msgs.0000000001").write_bytes(self.content)

    def open(self) -> "FakeLog":
        if self.fails:
            raise OSError("the disk failed")
        return self

    def read(self, file: int, at: int, length: int) -> bytes:
        assert file == 0
        return self.content[at : at + length]

    def close(self) -> None:
        self.is_closed = True


def test_each_log_is_written_to_the_folder_of_its_shard(tmp_path: Path) -> None:
    copies = ShardCopies([FakeLog(content) for content in CONTENTS])

    copies.write(str(tmp_path))

    files = ("msgs.0000000001", "logs/1/msgs.0000000001", "logs/2/msgs.0000000001")
    assert [(tmp_path / file).read_bytes() for file in files] == list(CONTENTS)
    assert copies.position == len(CONTENTS[0])


def test_each_file_is_read_from_its_log() -> None:
    logs = [FakeLog(content) for content in CONTENTS]

    opened = ShardCopies(logs).open()

    assert [file.path for file in opened.files] == [
        "msgs.0000000001",
        "logs/1/msgs.0000000001",
        "logs/2/msgs.0000000001",
    ]
    assert [opened.read(number, 1, file.bytes) for number, file in enumerate(opened.files)] == [
        content[1:] for content in CONTENTS
    ]
    opened.close()
    assert all(log.is_closed for log in logs)


def test_logs_are_released_when_one_cannot_be_opened() -> None:
    logs = [FakeLog(b"first"), FakeLog(b"second", fails=True)]

    with pytest.raises(OSError, match="the disk failed"):
        ShardCopies(logs).open()

    assert logs[0].is_closed
