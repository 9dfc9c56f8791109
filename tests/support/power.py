"""A disk that records its content after a kill or a power failure at every step.

While it records, a sync costs nothing: it only notes what is durable from then on. A sync of a directory makes its
names durable, a sync of a file its bytes, as in POSIX; no file system does worse. At each call that changes something
it takes pictures: of everything (a kill), of the durable part, and of the two mixtures that a power failure can leave,
durable bytes under all names and all bytes under durable names.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from unittest import mock

Tree = tuple[tuple[str, bytes | None], ...]
"""Paths below the directory and their bytes, None for a directory; parents first."""
STEPS = ("write", "pwrite", "fsync", "fdatasync", "ftruncate", "rename", "unlink", "mkdir", "rmdir")
T = TypeVar("T")


@dataclass(frozen=True)
class Picture:
    """A picture; `note` is the test's knowledge at that instant."""

    tree: Tree
    is_kill: bool
    note: Any


class Power:
    """Records everything below one directory.

    Invariant: a noted inode is held open, so that its number is not reused for another file.
    """

    def __init__(self, root: Path, note: Callable[[], Any]) -> None:
        self.pictures: list[Picture] = []
        self._root = root
        self._note = note
        self._names: dict[int, dict[str, int]] = {}
        self._bytes: dict[int, bytes] = {}
        self._held: dict[int, int] = {}
        self._one_at_a_time = Lock()
        self._seen: set[tuple[Tree, bool, str]] = set()

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record; existing files are durable."""
        for path in (self._root, *self._root.rglob("*")):
            self._keep(path)
        patches = [mock.patch.object(os, name, self._step(getattr(os, name), name)) for name in STEPS]
        for patch in patches:
            patch.start()
        try:
            yield
            self.take()
        finally:
            for patch in patches:
                patch.stop()
            for descriptor in self._held.values():
                os.close(descriptor)

    def take(self) -> None:
        """Take pictures of this instant, unless they were taken before."""
        for all_names in (True, False):
            for all_bytes in (True, False):
                tree = tuple(self._walk(self._root, "", all_names, all_bytes))
                is_kill, note = all_names and all_bytes, self._note()
                if (tree, is_kill, repr(note)) not in self._seen:
                    self._seen.add((tree, is_kill, repr(note)))
                    self.pictures.append(Picture(tree, is_kill, note))

    def _step(self, really: Callable[..., T], name: str) -> Callable[..., T | None]:
        @wraps(really)
        def step(*arguments: Any, **options: Any) -> T | None:
            if not self._is_below(arguments[0], options):
                return really(*arguments, **options)
            with self._one_at_a_time:
                self.take()
                if name not in ("fsync", "fdatasync"):
                    return really(*arguments, **options)
                self._keep(_path_of(arguments[0]))
                return None

        return step

    def _is_below(self, subject: Any, options: dict[str, Any]) -> bool:
        folder = options.get("dir_fd")
        if isinstance(subject, int):
            return _path_of(subject).is_relative_to(self._root)
        return (Path(subject) if folder is None else _path_of(folder) / subject).is_relative_to(self._root)

    def _keep(self, path: Path) -> None:
        number = self._hold(path)
        if path.is_dir():
            self._names[number] = {entry.name: self._hold(entry) for entry in path.iterdir()}
        else:
            self._bytes[number] = path.read_bytes()

    def _hold(self, path: Path) -> int:
        number = path.stat().st_ino
        if number not in self._held:
            self._held[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        return number

    def _walk(self, path: Path, way: str, all_names: bool, all_bytes: bool) -> Iterator[tuple[str, bytes | None]]:
        if all_names:
            found = {entry.name: entry.stat().st_ino for entry in path.iterdir()}
        else:
            found = self._names.get(path.stat().st_ino, {})
        for name, number in sorted(found.items()):
            entry = path / name if all_names else self._place(number)
            below = f"{way}/{name}" if way else name
            if entry.is_dir():
                yield below, None
                yield from self._walk(entry, below, all_names, all_bytes)
            else:
                yield below, entry.read_bytes() if all_bytes else self._bytes.get(number, b"")

    def _place(self, number: int) -> Path:
        """Return the path of a held inode, also when its name is gone."""
        return Path(f"/proc/self/fd/{self._held[number]}")


def _path_of(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}").readlink()


def restore(tree: Tree, root: Path) -> None:
    """Restore the directory of the picture."""
    root.mkdir(parents=True)
    for way, content in tree:
        if content is None:
            (root / way).mkdir()
        else:
            (root / way).write_bytes(content)
