"""Files of certificates: found again, and bounded however often a Secret changes."""

import os
from datetime import UTC, datetime
from pathlib import Path

from penstock_operator.links.certificates import FILES_BYTES_MAX, UNUSED_SECONDS, pem_file, remove_unused_files

MIB = 1 << 20


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def test_the_same_content_is_the_same_file(tmp_path: Path) -> None:
    path = pem_file("certificate", tmp_path)

    assert pem_file("certificate", tmp_path) == path
    assert Path(path).read_text() == "certificate"
    assert Path(path).stat().st_mode & 0o077 == 0


def test_files_of_before_take_bounded_space_and_the_one_that_was_used_last_stays(tmp_path: Path) -> None:
    used = pem_file("x" * MIB, tmp_path)
    for number in range(40):
        made = pem_file(f"{number:040}" * (MIB // 40), tmp_path)
        os.utime(made, (number, number))
        assert pem_file("x" * MIB, tmp_path) == used

    assert sum(each.stat().st_size for each in tmp_path.iterdir()) <= FILES_BYTES_MAX
    assert Path(used).exists()


def test_files_that_nothing_asked_for_lately_are_removed(tmp_path: Path) -> None:
    """Keys stayed in the operator's pod after their Secrets were gone."""
    old, used = pem_file("old key", tmp_path), pem_file("key in use", tmp_path)
    now = 1_000_000.0
    for path in (old, used):
        os.utime(path, (now, now))
    other = tmp_path / "other"
    other.write_text("of someone else")
    os.utime(other, (0, 0))

    remove_unused_files(at(now + UNUSED_SECONDS), tmp_path)
    assert Path(old).exists()
    os.utime(used, (now + 1, now + 1))
    remove_unused_files(at(now + UNUSED_SECONDS + 1), tmp_path)

    assert not Path(old).exists()
    assert Path(used).read_text() == "key in use"
    assert other.exists()
