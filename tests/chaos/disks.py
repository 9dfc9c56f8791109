"""A disk of its own for each broker: a file system in a file, which fills, and which loses what was not synced.

The file of a mounted file system has what the kernel has written to the disk so far. So a copy of it, made when the
broker is killed, is the disk as a failure of the power leaves it. It needs root, `losetup` and `mkfs.ext4`; mounts are
of this process and end with it.
"""

import ctypes
import json
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

__all__ = ["Disks", "are_possible"]

DISK_BYTES: Final = 1 << 30
BALLAST: Final = "ballast"
CLONE_NEWNS: Final = 0x20000
TOOLS: Final = ("mount", "umount", "losetup", "mkfs.ext4")


def are_possible() -> bool:
    """Enter a space for mounts that ends with this process; return False where disks cannot be made."""
    if os.geteuid() or not Path("/dev/loop-control").exists() or not all(map(shutil.which, TOOLS)):
        return False
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS):
        return False
    private = subprocess.run(["mount", "--make-rprivate", "/"], capture_output=True, check=False)
    probe = subprocess.run(["losetup", "--find"], capture_output=True, check=False)
    return private.returncode == 0 and probe.returncode == 0


class Disks:
    """Mounts a disk at a directory for each broker, and unmounts all at the end; their files stay there."""

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self._places = {name: root / name for name in names}

    def lose_power(self, name: str) -> None:
        """Leave on the disk only what has reached it. The broker has been killed."""
        place, image = self._places[name], self._image(name)
        after = image.with_suffix(".after")
        _run("cp", "--sparse=always", str(image), str(after))
        _run("umount", str(place))
        after.replace(image)
        self._mount(name)
        node = place / "node.json"
        if node.exists():  # the machine starts anew, too
            node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": ""}))

    def fill(self, name: str) -> None:
        """Take all of the space, part by part: a file system may have none for a large file where it has some left."""
        with (self._places[name] / BALLAST).open("wb") as ballast:
            size = DISK_BYTES
            at = 0
            while size >= 4096:
                try:
                    os.posix_fallocate(ballast.fileno(), at, size)
                    at += size
                except OSError:
                    size //= 2

    def free(self, name: str) -> None:
        (self._places[name] / BALLAST).unlink()

    def __enter__(self) -> Self:
        for name, place in self._places.items():
            place.mkdir(mode=0o700)
            with self._image(name).open("wb") as file:
                file.truncate(DISK_BYTES)
            # Space that is kept for root would let a full disk go on.
            _run("mkfs.ext4", "-q", "-m", "0", str(self._image(name)))
            self._mount(name)
            (place / "lost+found").rmdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for place in self._places.values():
            subprocess.run(["umount", str(place)], capture_output=True, check=False)

    def _image(self, name: str) -> Path:
        return self._places[name].with_suffix(".disk")

    def _mount(self, name: str) -> None:
        # A long interval between two commits of the file system's journal: only what a broker syncs reaches the disk.
        _run("mount", "-o", "loop,commit=300", str(self._image(name)), str(self._places[name]))


def _run(*command: str) -> None:
    subprocess.run(command, capture_output=True, check=True)
