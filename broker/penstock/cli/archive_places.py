"""Where `penstock backup` keeps an archive: a file, or an object of a server that speaks S3.

Either is stored whole or not at all: a file under another name that is renamed at the end, an object as an upload in
parts that is completed at the end. The content is not known here.
"""

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["FilePlace", "Place", "S3Place", "TakenError", "place_of"]

S3 = "s3://"
UPLOAD_PARTS_MAX = 10_000
"""S3 takes no more parts of one object."""
UPLOAD_PART_BYTES_MIN = 8 << 20
UPLOADS_MAX = 2
"""Parts that are sent at a time; as many are in memory."""
READ_BYTES = 8 << 20
CLAIMS_MAX = 10
"""Attempts to lock a file that other processes complete at the same time."""
REQUEST_SECONDS_MAX = 600
"""So long one request may take: it sends or fetches one part."""


class TakenError(ValueError):
    """There is a file or an object already."""


class Place(Protocol):
    """A file or an object, which may be there or not."""

    def check_free(self) -> None:
        """Raise TakenError when something is there already."""

    def store(self, parts: Iterable[bytes], size: int) -> None:
        """Store the parts, `size` bytes in all, when the last one has come. An error of theirs leaves nothing.

        Raises TakenError when something is there already, which stays.
        """

    def opened(self) -> contextlib.AbstractContextManager[Callable[[int], bytes]]:
        """Yield a function that returns the next bytes, at most so many. Raises OSError."""

    def delete(self) -> None:
        """Delete it, and what a command that was killed left of it; neither has to be there."""


def place_of(target: str) -> Place:
    """Return the place that a command line names. Raises ValueError."""
    if not target.startswith(S3):
        return FilePlace(Path(target))
    bucket, _, key = target.removeprefix(S3).partition("/")
    if not bucket or not key or key.endswith("/"):
        raise ValueError(f"'{target}' names no object; name one as s3://BUCKET/KEY")
    return S3Place(target, bucket, key)


class FilePlace:
    """A file. It is filled under one other name, so that commands that are killed leave one file, not many.

    `lock` locks an open file, and returns False if another process has locked it.
    """

    def __init__(self, path: Path, lock: Callable[[int], bool] | None = None) -> None:
        self._path = path
        self._lock = lock or _is_locked
        self._unfinished = path.with_name(f".{path.name}.new")

    def check_free(self) -> None:
        if self._path.exists() or self._path.is_symlink():
            raise TakenError(f"'{self._path}' exists; name another file, or delete it first")

    def store(self, parts: Iterable[bytes], size: int) -> None:  # noqa: ARG002 - only an object has to know it
        descriptor = self._claimed()
        try:
            try:
                self.check_free()
                os.ftruncate(descriptor, 0)
                for part in parts:
                    _write_all(descriptor, part, self._unfinished)
                os.fsync(descriptor)
                self.check_free()
                self._unfinished.rename(self._path)
                _sync_directory(self._path.parent)
            except BaseException:
                with contextlib.suppress(OSError):
                    self._unfinished.unlink(missing_ok=True)
                raise
        finally:
            os.close(descriptor)

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], bytes]]:
        with self._path.open("rb", buffering=0) as file:
            yield file.read

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(self._unfinished, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                if self._lock(descriptor) and self._is_unfinished(descriptor):
                    self._unfinished.unlink()
            finally:
                os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            _sync_directory(self._path.parent)

    def _claimed(self) -> int:
        """Open the file under the other name, and lock it. Raises ValueError when another process has it."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        for _ in range(CLAIMS_MAX):
            descriptor = os.open(self._unfinished, flags, 0o600)
            if not self._lock(descriptor):
                os.close(descriptor)
                break
            if self._is_unfinished(descriptor):
                return descriptor
            os.close(descriptor)
        raise ValueError(f"'{self._path}' is being written by another process; wait until that has ended")

    def _is_unfinished(self, descriptor: int) -> bool:
        """Return whether the open file still has the other name: it was another's archive until it was locked.

        Between, that process may have given it the final name: then it is whole, and not to be touched.
        """
        try:
            return os.path.samestat(os.fstat(descriptor), self._unfinished.lstat())
        except FileNotFoundError:
            return False


class S3Place:
    """An object. The endpoint and the credentials come from the variables AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ..."""

    def __init__(self, target: str, bucket: str, key: str) -> None:
        self._target = target
        self._key = key
        self._obstore = _imported()
        may_be_clear = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes", "on")
        if os.environ.get("AWS_ENDPOINT_URL", "").lower().startswith("http://") and not may_be_clear:
            raise ValueError("AWS_ENDPOINT_URL is http://, which sends backups in clear text; set AWS_ALLOW_HTTP=true")
        options = {"timeout": timedelta(seconds=REQUEST_SECONDS_MAX), "allow_http": may_be_clear}
        self._store: S3Store = self._obstore.store.S3Store(bucket, client_options=options)

    def check_free(self) -> None:
        with self._named("examined"), contextlib.suppress(FileNotFoundError):
            self._obstore.head(self._store, self._key)
            raise TakenError(f"'{self._target}' exists; name another object, or delete it first")

    def store(self, parts: Iterable[bytes], size: int) -> None:
        part_bytes = max(UPLOAD_PART_BYTES_MIN, -(-size // UPLOAD_PARTS_MAX))
        with self._named("written"):
            # An error of `parts` aborts the upload, of which nothing is visible then.
            self._obstore.put(
                self._store,
                self._key,
                self._last_if_free(parts),
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=UPLOADS_MAX,
            )

    def _last_if_free(self, parts: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the parts, the last one only if nothing was stored under the key meanwhile: it would be replaced.

        An upload in parts has no condition, so this leaves the time of one request, not that of the whole upload.
        """
        last: bytes | None = None
        for part in parts:
            if last is not None:
                yield last
            last = part
        with ThreadPoolExecutor(1) as thread:  # the library waits for no request on the thread that asks for parts
            thread.submit(self.check_free).result()
        if last is not None:
            yield last

    @contextmanager
    def opened(self) -> Iterator[Callable[[int], bytes]]:
        with self._named("read"):
            size: int = self._obstore.head(self._store, self._key)["size"]
        at, rest = 0, memoryview(b"")

        def read(count: int) -> bytes:
            nonlocal at, rest
            if not rest and at < size:
                # One request for each, which the library repeats: a connection need not last for the whole object.
                end = min(at + READ_BYTES, size)
                with self._named("read"):
                    rest = memoryview(bytes(self._obstore.get_range(self._store, self._key, start=at, end=end)))
                at = end
            found, rest = rest[:count], rest[count:]
            return bytes(found)

        yield read

    def delete(self) -> None:
        with self._named("deleted"), contextlib.suppress(FileNotFoundError):
            self._obstore.delete(self._store, self._key)

    @contextmanager
    def _named(self, done: str) -> Iterator[None]:
        """Turn errors of the library into an OSError that names the object; its own texts span many lines."""
        try:
            yield
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "No such bucket or object", self._target) from error
        except self._obstore.exceptions.BaseError as error:
            lines = str(error).strip().splitlines()
            raise OSError(
                f"'{self._target}' cannot be {done}: {lines[0] if lines else type(error).__name__}"
            ) from error


def _imported() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise ValueError("s3:// needs the package obstore; install it with: pip install 'penstock[s3]'") from error
    return obstore


def _is_locked(descriptor: int) -> bool:
    """Take the lock of an open file, which ends with the process; return whether no other process had it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_all(descriptor: int, content: bytes, path: Path) -> None:
    view = memoryview(content)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError as error:
        error.filename = str(path)
        raise


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
