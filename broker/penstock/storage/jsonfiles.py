"""JSON files that operators may edit while the broker is down.

A write is atomic (a reader sees the old or the new file, even after a power failure) and keeps the order of its input.
A broken file is an error that names the place, never an empty broker. This module does not know what the files mean.
"""

import contextlib
import errno
import json
import os
import re
from pathlib import Path

from penstock.model.errors import DiskFullError, NotWrittenError, StorageError, Thing

JSON_BYTES_MAX = 256 * 1024 * 1024
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
# Escapes in their order, so that a backslash that is escaped begins none. The group is half a pair without the other.
_ESCAPES = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F])|.)", re.DOTALL)


def read_json(path: Path) -> object:
    """Return the file's value.

    Raises StorageError naming file, line and column; the caller handles FileNotFoundError.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StorageError(
            _file(path), f"cannot be read: {error.strerror}", "make it readable for the broker's user"
        ) from error
    if len(content) > JSON_BYTES_MAX:
        raise StorageError(
            _file(path), f"holds {len(content)} bytes, more than {JSON_BYTES_MAX}", "restore the right file"
        )
    return parse_json(content, path)


def parse_json(content: bytes, path: Path) -> object:
    """Return the value of a file's content. Raises StorageError naming file, line and column."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(content, error.start)
        raise _broken(path, line, column, "this is not UTF-8") from error
    _check_surrogates(text, path)
    try:
        return json.loads(text, object_pairs_hook=_without_doubles)
    except json.JSONDecodeError as error:
        raise _broken(path, error.lineno, error.colno, error.msg) from error
    except RecursionError as error:
        raise _broken(path, 1, 1, "it nests too deeply") from error
    except _DoubleKeyError as error:
        key = json.dumps(error.key, ensure_ascii=False)
        raise StorageError(_file(path), f"has the key {key} twice in one object", "remove one of them") from error
    except ValueError as error:  # Python reads no integers of thousands of digits
        raise _broken(path, 1, 1, "it has a number that is too long") from error


def _check_surrogates(text: str, path: Path) -> None:
    """Raise StorageError for half a surrogate pair: Python reads it, and fails wherever the text is used."""
    if not _HALF.search(text):
        return
    for escape in _ESCAPES.finditer(text):
        if escape[1]:
            line, at = text.count("\n", 0, escape.start()) + 1, text.rfind("\n", 0, escape.start())
            raise _broken(path, line, escape.start() - at, "this is half of a surrogate pair")


class _DoubleKeyError(ValueError):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _without_doubles(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:  # json would keep the last one and drop the first without a word
            raise _DoubleKeyError(key)
        found[key] = value
    return found


def _place(content: bytes, offset: int) -> tuple[int, int]:
    before = content[:offset]
    line_start = before.rfind(b"\n") + 1
    return before.count(b"\n") + 1, len(before[line_start:].decode("utf-8", "replace")) + 1


def _broken(path: Path, line: int, column: int, reason: str) -> StorageError:
    return StorageError(
        _file(path),
        f"is not valid JSON at line {line} column {column}: {reason}",
        "correct it or restore a copy, then start again (nothing was changed)",
    )


def _file(path: Path) -> Thing:
    return Thing("file", str(path))


def write_json(path: Path, value: object) -> None:
    """Replace the file by the value, whole or not at all. Blocks until it is on the disk."""
    write_file(path, json_content(value))


def json_content(value: object) -> bytes:
    """Return the content of a file with this value."""
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()


def write_file(path: Path, content: bytes) -> None:
    """Replace a file's content in one step that survives power loss.

    Raises DiskFullError or NotWrittenError when the old content stays, and another StorageError when either may be
    there after a power failure.
    """
    temporary = path.with_name(path.name + ".new")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            write_all(descriptor, content)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise kind_of(error)(
            _file(path), f"cannot be written: {error.strerror}", "free space or repair the disk; the old contents stay"
        ) from error
    try:
        sync_directory(path.parent)
    except OSError as error:
        rule = f"was written, and its directory cannot be synced: {error.strerror}"
        raise StorageError(_file(path), rule, "free space or repair the disk, then restart") from error


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file's content as `write_file` does, unless it is so already."""
    try:
        if path.read_bytes() == content:
            return
    except OSError:
        pass  # it is not there, or writing it reports the error
    write_file(path, content)


def kind_of(error: OSError) -> type[StorageError]:
    """Return the error for a write of which nothing stays: for a full disk, to which space comes back, or another."""
    return DiskFullError if error.errno in {errno.ENOSPC, errno.EDQUOT} else NotWrittenError


def write_all(descriptor: int, content: bytes | bytearray) -> None:
    """Write every byte: one `write` may take fewer than it is passed."""
    view = memoryview(content)
    while view:
        written = os.write(descriptor, view)
        view = view[written:]


def sync_directory(path: Path) -> None:
    """Make created, renamed and removed names of a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
