"""Archives of backups: what was read is restored, and an archive that is not whole or not a backup's is refused."""

import io
import json
import tarfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from penstock.model.errors import PreconditionFailedError, StorageError
from penstock.native import BackupFile
from penstock.storage import DataDirectory, directory_name, is_archive, read_vhosts, restore_archive
from penstock.storage.backup_archive import LIST, TRAILER_BYTES, header, padding
from support.archives import SEGMENT, TIME, ReadableLog, archive_by_hand, archive_of_one_vhost

FOLDER = directory_name("/")
USERS, VHOSTS = b"[]\n", json.dumps([{"name": "/", "dir": FOLDER}]).encode()


def restore(archive: bytes, target: Path) -> list[str]:
    return restore_archive(io.BytesIO(archive).read, "the.tar", target)


@pytest.mark.parametrize("part", [1_000, 1 << 20])
def test_an_archive_is_restored_as_a_data_directory(tmp_path: Path, part: int) -> None:
    archive = archive_of_one_vhost(tmp_path, part=part)

    assert restore(archive, tmp_path / "new") == ["a/b"]

    folder = tmp_path / "new" / directory_name("a/b")
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(
        [folder.name, "node.json", "users.json", "vhosts.json"]
    )
    assert (folder / "msgs.0000000001").read_bytes() == SEGMENT
    assert (folder / "shards" / "7" / "msgs.0000000001").read_bytes() == b"active" + bytes(4_090)
    assert read_vhosts(tmp_path / "new" / "vhosts.json") == ["a/b"]
    assert (tmp_path / "new" / "users.json").stat().st_mode & 0o777 == 0o600
    with DataDirectory.open(tmp_path / "new") as opened:
        assert opened.may_have_lost_page_cache
        assert opened.has_proof("a/b")


def test_other_tools_read_an_archive(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)

    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        names = opened.getnames()
        listed = json.loads(opened.extractfile(names[0]).read())  # type: ignore[union-attr]

    assert (names[0], names[-1]) == ("penstock-backup.json", "penstock-backup.sha256")
    assert names[1:-1] == [file["name"] for file in listed["files"]]
    assert (listed["format"], listed["version"], listed["vhosts"]) == (2, "1.2.3", ["a/b"])
    assert datetime.fromisoformat(listed["created_at"]) == datetime.fromtimestamp(TIME, UTC)
    assert is_archive(archive[:512])


def test_a_file_that_no_broker_made_does_not_keep_a_backup_from_being_restored(tmp_path: Path) -> None:
    # The download was complete, and every restore refused the name.
    def add(folder: Path) -> None:
        (folder / "policies copy.json").write_text("[]")
        (folder / f"{'x' * 70}.json").write_text("[]")
        (folder / "folder.json").mkdir()

    archive = archive_of_one_vhost(tmp_path, prepare=add)

    assert restore(archive, tmp_path / "new") == ["a/b"]
    folder = tmp_path / "new" / directory_name("a/b")
    assert [path.name for path in folder.glob("*.json")] == ["policies.json"]


def test_an_archive_that_no_restore_would_accept_is_not_begun(tmp_path: Path) -> None:
    log = ReadableLog()
    log.opened.files.append(BackupFile(path="msgs copy", bytes=0, size=0))

    with pytest.raises(StorageError, match=r"could not be restored: .*'[0-9a-f]{40}/msgs copy', which no backup has"):
        archive_of_one_vhost(tmp_path, log=log)
    assert log.opened.is_closed


def test_a_log_is_released_when_the_stream_has_passed_it(tmp_path: Path) -> None:
    log = ReadableLog()

    archive_of_one_vhost(tmp_path, log=log)

    assert log.opened.is_closed


def test_no_truncated_archive_is_restored(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)
    ends = [*range(0, 6_000, 251), len(SEGMENT), *range(len(archive) - 6_000, len(archive), 251), len(archive) - 1]

    for end in ends:
        with pytest.raises(StorageError, match=r"not whole|not an archive"):
            restore(archive[:end], tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_no_archive_with_a_flipped_bit_is_restored(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)
    places = [*range(0, 9_000, 97), len(SEGMENT), *range(len(archive) - TRAILER_BYTES, len(archive), 97)]

    for at in places:
        flipped = bytearray(archive)
        flipped[at] ^= 1
        with pytest.raises(StorageError, match=r"archive 'the\.tar'|'the\.tar' is not valid|file 'the\.tar'"):
            restore(bytes(flipped), tmp_path / "new")
        assert not (tmp_path / "new").exists()


def test_an_archive_that_goes_on_after_its_end_is_refused(tmp_path: Path) -> None:
    archive = archive_of_one_vhost(tmp_path)

    with pytest.raises(StorageError, match="follow its end"):
        restore(archive + archive, tmp_path / "new")


def listed(files: Sequence[tuple[str, object]]) -> dict[str, object]:
    entries = [{"name": name, "bytes": size} for name, size in files]
    return {
        "format": 1,
        "version": "1",
        "data_id": "",
        "created_at": datetime.fromtimestamp(TIME, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "vhosts": ["/"],
        "files": entries,
    }


GOOD = [("users.json", USERS), ("vhosts.json", VHOSTS), (f"{FOLDER}/.vhost", b"/")]


def by_hand(*more: tuple[str, bytes], **changes: object) -> bytes:
    files = [*GOOD, *more]
    return archive_by_hand(listed([(name, len(body)) for name, body in files]) | changes, files)


@pytest.mark.parametrize("format_", [1, 2])
def test_an_archive_by_hand_is_like_the_broker_s(tmp_path: Path, format_: int) -> None:
    assert restore(by_hand(format=format_), tmp_path / "new") == ["/"]

    with DataDirectory.open(tmp_path / "new") as opened:
        assert opened.format == format_


@pytest.mark.parametrize(
    "name",
    [
        f"{FOLDER}/../x",
        "../x",
        "/etc/x",
        f"/{FOLDER}/x",
        f"{FOLDER}//x",
        f"{FOLDER}/./x",
        f"{FOLDER}/.",
        f"{FOLDER}/a\\..",
        f"{FOLDER}/a\n",
        f"{FOLDER}/\0",
        f"{FOLDER}/a/b/c/d",
        f"{FOLDER}/{'a' * 100}",
        "node.json",
        ".lock",
        "clean",
        "x",
        "",
    ],
)
def test_a_name_that_no_backup_has_is_refused(tmp_path: Path, name: str) -> None:
    content = listed([*((good, len(body)) for good, body in GOOD), (name, 1)])

    with pytest.raises(StorageError, match="which no backup has"):
        restore(archive_by_hand(content, GOOD), tmp_path / "deep" / "new")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", [f"{FOLDER}/.vhost", f"{FOLDER}/.vhost/x"])
def test_two_files_of_one_name_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StorageError, match="two files of one name"):
        restore(by_hand((name, b"x")), tmp_path / "new")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE])
def test_a_link_or_device_in_the_place_of_a_file_is_refused(tmp_path: Path, kind: bytes) -> None:
    archive = by_hand((f"{FOLDER}/x", b""))
    entry = tarfile.TarInfo(f"{FOLDER}/x")
    entry.type, entry.linkname, entry.mtime, entry.mode = kind, "/etc/passwd", TIME, 0o600
    at = archive.index(f"{FOLDER}/x\0".encode())

    with pytest.raises(StorageError, match=f"the entry of {FOLDER}/x is another"):
        restore(archive[:at] + entry.tobuf(tarfile.GNU_FORMAT) + archive[at + 512 :], tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("size", "rule"),
    [
        (-1, "no valid"),
        (True, "no valid"),
        ("1", "no valid"),
        (1.5, "no valid"),
        (1 << 62, "no valid"),
        (1 << 50, "free bytes"),
        (2, "is another|not whole"),
    ],
)
def test_a_size_that_lies_is_refused(tmp_path: Path, size: object, rule: str) -> None:
    files = [*GOOD, (f"{FOLDER}/x", b"1")]
    content = listed([*((name, len(body)) for name, body in GOOD), (f"{FOLDER}/x", size)])

    with pytest.raises(StorageError, match=rule):
        restore(archive_by_hand(content, files), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_file_of_more_zeros_than_a_segment_has_is_refused(tmp_path: Path) -> None:
    content = listed([(name, len(body)) for name, body in GOOD])
    content["files"].append({"name": f"{FOLDER}/x", "bytes": 0, "size": (1 << 30) + 1})  # type: ignore[attr-defined]

    with pytest.raises(StorageError, match="a size that no file of a backup has"):
        restore(archive_by_hand(content, [*GOOD, (f"{FOLDER}/x", b"")]), tmp_path / "new")


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"format": 3}, "has the format 3, and this version knows 1 to 2"),
        ({"more": 1}, "no valid"),
        ({"request_id": ""}, "no valid"),
        ({"request_id": 1}, "no valid"),
        ({"request_id": "a" * 129}, "no valid"),
        ({"request_id": "a/b"}, "no valid"),
        ({"vhosts": "/"}, "no valid"),
        ({"vhosts": [1]}, "no valid"),
        ({"files": {}}, "no valid"),
        ({"files": [1]}, "no valid"),
        ({"files": []}, "no users.json"),
        ({"created_at": "now"}, "no valid time"),
        ({"vhosts": ["/", "other"]}, "of different virtual hosts"),
    ],
)
def test_a_list_that_no_broker_writes_is_refused(tmp_path: Path, changes: dict[str, object], rule: str) -> None:
    with pytest.raises(StorageError, match=rule):
        restore(by_hand(**changes), tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_vhosts_file_with_half_a_surrogate_pair_is_refused_in_one_sentence(tmp_path: Path) -> None:
    # It was "'utf-8' codec can't encode character '\\ud800' in position 0: surrogates not allowed".
    files = [("users.json", USERS), ("vhosts.json", rb'[{"name": "\ud800", "dir": "0"}]')]
    archive = archive_by_hand(listed([(name, len(body)) for name, body in files]), files)

    with pytest.raises(StorageError) as caught:
        restore(archive, tmp_path / "new")

    assert str(caught.value) == (
        "archive 'the.tar' is not whole: its vhosts.json is not valid JSON at line 1 column 12: this is half of a"
        " surrogate pair; copy it again, or use another one; nothing was restored"
    )
    assert not (tmp_path / "new").exists()


def test_a_folder_of_no_vhost_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="of different virtual hosts"):
        restore(by_hand((f"{'0' * 40}/x", b"")), tmp_path / "new")


@pytest.mark.parametrize("first", [b"", b"short", bytes(512), b"x" * 512])
def test_other_files_are_no_archives(tmp_path: Path, first: bytes) -> None:
    assert not is_archive(first)
    with pytest.raises(StorageError, match="is not an archive of a backup"):
        restore(first, tmp_path / "new")


def test_a_tar_of_something_else_is_no_archive() -> None:
    with io.BytesIO() as content:
        with tarfile.open(fileobj=content, mode="w") as made:
            made.addfile(tarfile.TarInfo("penstock-backup.json"))
        assert not is_archive(content.getvalue()[:512])


def test_a_source_that_fails_is_named(tmp_path: Path) -> None:
    archive = io.BytesIO(by_hand())

    def read(count: int) -> bytes:
        if archive.tell() > 1_000:
            raise OSError("the connection was reset")
        return archive.read(count)

    with pytest.raises(StorageError, match=r"archive 'the\.tar' cannot be read: the connection was reset"):
        restore_archive(read, "the.tar", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_directory_with_something_in_it_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "note").write_text("mine")

    with pytest.raises(PreconditionFailedError, match="is not empty"):
        restore(by_hand(), tmp_path / "new")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["note"]


def test_a_list_with_an_endless_number_is_refused(tmp_path: Path) -> None:
    # It was a ValueError about Python's limits.
    text = b'{"format":' + b"9" * 5_000 + b"}"
    archive = header(LIST, len(text), TIME) + text + bytes(padding(len(text)))

    with pytest.raises(StorageError, match="it has a number that is too long"):
        restore(archive, tmp_path / "new")
