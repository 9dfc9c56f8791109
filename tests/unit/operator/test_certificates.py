"""Files of certificates: found again, and bounded however often a Secret changes."""

import os
from pathlib import Path

from penstock_operator.links.certificates import FILES_BYTES_MAX, pem_file

MIB = 1 << 20


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
