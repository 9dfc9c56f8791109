"""Archives in files and in S3: whole or not there."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.cli.archive_places import FilePlace, Place, place_of
from support.fake_s3 import FakeS3

CONTENT = [bytes([number]) * (1 << 20) for number in range(20)]
SIZE = len(CONTENT) << 20


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeS3]:
    with FakeS3() as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture(params=["file", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "file":
        return place_of(str(tmp_path / "x.tar"))
    request.getfixturevalue("s3")
    return place_of("s3://bucket/folder/x.tar")


def read_all(place: Place, length: int) -> bytes:
    with place.opened() as read:
        return b"".join(iter(lambda: read(length), b""))


@pytest.mark.parametrize("length", [1_000_003, 1 << 22])
def test_what_is_stored_is_read_and_deleted(place: Place, length: int) -> None:
    place.check_free()
    place.store(iter(CONTENT), SIZE)

    assert read_all(place, length) == b"".join(CONTENT)
    with pytest.raises(ValueError, match="exists; name another"):
        place.check_free()
    place.delete()
    place.check_free()
    with pytest.raises(FileNotFoundError, match="No such"):
        read_all(place, 100)
    place.delete()


def test_an_archive_that_breaks_off_is_not_stored(place: Place, tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield from CONTENT[:-1]
        raise ConnectionError("the broker is gone")

    with pytest.raises(Exception, match="the broker is gone"):
        place.store(parts(), SIZE)

    place.check_free()
    assert list(tmp_path.iterdir()) == []


def test_an_upload_that_breaks_off_is_aborted(s3: FakeS3) -> None:
    def parts() -> Iterator[bytes]:
        yield from CONTENT[:-1]
        raise ConnectionError("the broker is gone")

    with pytest.raises(ConnectionError, match="the broker is gone"):
        place_of("s3://bucket/x.tar").store(parts(), SIZE)

    assert (s3.completed, s3.aborted, s3.uploads, s3.objects) == (0, 1, {}, {})


def test_an_object_that_another_stored_meanwhile_stays(s3: FakeS3) -> None:
    # Of two downloads to one key both said that they stored their backup, and the first one's was gone.
    def parts() -> Iterator[bytes]:
        yield from CONTENT[:-1]
        s3.objects["bucket/x.tar"] = b"theirs"
        yield CONTENT[-1]

    with pytest.raises(ValueError, match="exists; name another object"):
        place_of("s3://bucket/x.tar").store(parts(), SIZE)

    assert (s3.completed, s3.aborted, s3.uploads, s3.objects) == (0, 1, {}, {"bucket/x.tar": b"theirs"})


def test_an_upload_is_signed_and_has_few_parts(s3: FakeS3) -> None:
    place_of("s3://bucket/x.tar").store(iter(CONTENT), SIZE)

    assert s3.completed == 1
    assert s3.objects == {"bucket/x.tar": b"".join(CONTENT)}
    assert all(each.startswith("AWS4-HMAC-SHA256 Credential=the-key/") for each in s3.authorizations)


def test_a_server_that_refuses_is_named_in_one_line(s3: FakeS3) -> None:
    s3.fails = True

    with pytest.raises(OSError, match=r"'s3://bucket/x\.tar' cannot be written: ") as caught:
        place_of("s3://bucket/x.tar").store(iter(CONTENT), SIZE)

    assert "\n" not in str(caught.value)
    assert s3.objects == {}


def test_a_server_that_is_not_there_is_named(s3: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://127.0.0.1:1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "false")

    with pytest.raises(OSError, match=r"'s3://bucket/x\.tar' cannot be examined: "):
        place_of("s3://bucket/x.tar").check_free()


def test_clear_text_has_to_be_wanted(s3: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ALLOW_HTTP")

    with pytest.raises(ValueError, match="sends backups in clear text; set AWS_ALLOW_HTTP=true"):
        place_of("s3://bucket/x.tar")
    assert s3.authorizations == set()


@pytest.mark.parametrize("target", ["s3://", "s3://bucket", "s3://bucket/", "s3:///key", "s3://bucket/folder/"])
def test_a_target_without_an_object_is_refused(target: str) -> None:
    with pytest.raises(ValueError, match="names no object"):
        place_of(target)


def test_a_full_disk_names_the_file_and_leaves_none(tmp_path: Path, small_disk: Callable[..., Path]) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=2_048)

    with pytest.raises(OSError, match="No space left") as caught:
        place_of(str(disk / "x.tar")).store(iter(CONTENT), SIZE)

    assert caught.value.errno == errno.ENOSPC
    assert caught.value.filename == f"{disk}/.x.tar.new"
    assert list(disk.iterdir()) == []


def test_a_file_that_another_made_meanwhile_stays(tmp_path: Path) -> None:
    target = tmp_path / "x.tar"

    def parts() -> Iterator[bytes]:
        target.write_bytes(b"another's")
        yield b"mine"

    with pytest.raises(ValueError, match="exists"):
        place_of(str(target)).store(parts(), 4)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"another's"]


def test_a_command_that_was_killed_leaves_one_file_that_the_next_one_or_a_deletion_takes_away(tmp_path: Path) -> None:
    target, left = tmp_path / "x.tar", tmp_path / ".x.tar.new"
    left.write_bytes(b"half" * 1_000)

    place_of(str(target)).store(iter([b"whole"]), 5)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.tar", b"whole")]
    left.write_bytes(b"half")
    place_of(str(target)).delete()
    assert list(tmp_path.iterdir()) == []


def test_two_commands_do_not_write_one_file(tmp_path: Path) -> None:
    place = place_of(str(tmp_path / "x.tar"))

    def parts() -> Iterator[bytes]:
        with pytest.raises(ValueError, match="is being written by another process"):
            place_of(str(tmp_path / "x.tar")).store([b"theirs"], 6)
        place_of(str(tmp_path / "x.tar")).delete()
        yield b"mine"

    place.store(parts(), 4)

    assert (tmp_path / "x.tar").read_bytes() == b"mine"


def test_a_file_that_another_command_completes_before_it_is_locked_stays_whole(tmp_path: Path) -> None:
    # A command that opened the other's file just before it was renamed locked, emptied and filled the whole backup.
    target, unfinished = tmp_path / "x.tar", tmp_path / ".x.tar.new"

    def lock(_: int) -> bool:
        if not target.exists():
            unfinished.write_bytes(b"theirs")
            unfinished.rename(target)
        return True

    with pytest.raises(ValueError, match="exists; name another"):
        FilePlace(target, lock).store(iter([b"mine"]), 4)

    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("x.tar", b"theirs")]


def test_a_deletion_does_not_take_away_what_another_command_began_meanwhile(tmp_path: Path) -> None:
    target, unfinished = tmp_path / "x.tar", tmp_path / ".x.tar.new"
    unfinished.write_bytes(b"old")

    def lock(_: int) -> bool:
        unfinished.rename(target)
        unfinished.write_bytes(b"new")
        return True

    FilePlace(target, lock).delete()

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"x.tar": b"old", ".x.tar.new": b"new"}


def test_without_the_library_one_sentence_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['obstore'] = None\n"
        "from penstock.cli.archive_places import place_of\n"
        "try:\n    place_of('s3://bucket/key')\nexcept ValueError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ)

    assert done.stdout == "s3:// needs the package obstore; install it with: pip install 'penstock[s3]'\n"
