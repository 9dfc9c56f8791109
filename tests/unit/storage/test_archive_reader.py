"""An archive that is read without being unpacked: whose it is, and whether it is whole."""

import hashlib
import io
from pathlib import Path

import pytest

from penstock.model.errors import StorageError
from penstock.storage import StoredArchive, find_stored, restore_archive
from penstock.storage.backup_archive import TRAILER_BYTES
from support.archives import SEGMENT, archive_of_one_vhost

OURS = "6f1d-ours"


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    return archive_of_one_vhost(tmp_path, request_id=OURS)


def find(archive: bytes, request_id: str = OURS) -> StoredArchive | None:
    return find_stored(io.BytesIO(archive).read, "the.tar", request_id)


def test_the_archive_of_a_request_is_recognized_and_described(archive: bytes, tmp_path: Path) -> None:
    found = find(archive)

    assert found is not None
    assert (found.bytes, found.sha256) == (len(archive), hashlib.sha256(archive).hexdigest())
    assert (found.vhost_count, found.version) == (1, "1.2.3")
    assert found.data_id
    assert restore_archive(io.BytesIO(archive).read, "the.tar", tmp_path / "new") == ["a/b"]


@pytest.mark.parametrize("request_id", ["6f1d-others", "6f1d-our", ""])
def test_the_archive_of_another_request_is_not_recognized(archive: bytes, request_id: str) -> None:
    assert find(archive, request_id) is None


def test_an_archive_without_a_request_is_not_recognized(tmp_path: Path) -> None:
    assert find(archive_of_one_vhost(tmp_path)) is None


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5_000, bytes(5_000)])
def test_another_file_is_not_recognized(content: bytes) -> None:
    assert find(content) is None


def test_an_archive_of_the_request_that_is_not_whole_is_an_error(archive: bytes) -> None:
    ends = [5_000, len(SEGMENT), len(archive) - TRAILER_BYTES, len(archive) - 1]
    for content in (*(archive[:end] for end in ends), archive + b"x"):
        with pytest.raises(StorageError, match=r"archive 'the\.tar' is not whole"):
            find(content)


def test_a_flipped_bit_is_an_error_or_another_s(archive: bytes) -> None:
    for at in (0, 100, 600, 5_000, len(SEGMENT), len(archive) - TRAILER_BYTES, len(archive) - TRAILER_BYTES // 2):
        flipped = bytearray(archive)
        flipped[at] ^= 1
        try:
            found = find(bytes(flipped))
        except StorageError:
            continue
        assert found is None


@pytest.mark.parametrize("bytes_max", [0, 5_000])
def test_a_source_that_fails_is_an_error(archive: bytes, bytes_max: int) -> None:
    content = io.BytesIO(archive[:bytes_max])

    def read(count: int) -> bytes:
        part = content.read(count)
        if not part:
            raise OSError("the connection was reset")
        return part

    with pytest.raises(StorageError, match=r"archive 'the\.tar' cannot be read: the connection was reset"):
        find_stored(read, "the.tar", OURS)
