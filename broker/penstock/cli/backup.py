"""`penstock backup`: copies of a running broker's data, on its machine or as one archive elsewhere."""

import hashlib
import re
import signal
from collections.abc import Callable, Generator
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.archive_places import Place, TakenError, place_of
from penstock.cli.group import Commands
from penstock.cli.options import Uri, connected
from penstock.cli.output import Output, print_done

__all__ = ["app"]

SECONDS_MAX = 3_600.0
READ_BYTES = 1 << 20
PART_SECONDS_MAX = 120.0
"""So long the broker may take to fix a backup, and for each part of it."""

app = Commands(help="Back up a running broker.")
Target = Annotated[str, typer.Argument(metavar="TARGET", help="A file, or s3://BUCKET/KEY.")]
RequestId = Annotated[
    str,
    typer.Option(
        "--request-id",
        envvar="PENSTOCK_BACKUP_REQUEST_ID",
        help="Accept a file that an attempt of this id stored.",
        metavar="ID",
        show_default=False,
    ),
]


@app.command()
def write(
    context: typer.Context,
    directory: Annotated[Path, typer.Argument(help="Absolute path on the broker's machine; empty or new.")],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Write a backup on the broker's machine."""
    with connected(context, uri, timeout=SECONDS_MAX) as connection:
        size = connection.admin.backup(str(directory))
    print_done(f"{size:,} bytes written to {directory}", {"directory": str(directory), "bytes": size}, output)


@app.command()
def download(
    context: typer.Context, target: Target, uri: Uri = None, request_id: RequestId = "", output: Output = None
) -> None:
    """Download a backup to a file or to S3."""
    place = place_of(target)
    try:
        place.check_free()
        signal.signal(signal.SIGTERM, _end)  # before there is anything to remove
        done = _stored(context, uri, place, request_id)
        text = f"{done['bytes']:,} bytes stored as {target}"
    except TakenError:
        before = _stored_before(place, target, request_id)
        if before is None:
            raise
        done = before
        text = f"{done['bytes']:,} bytes were stored as {target} by an earlier attempt"
    print_done(text, {"target": target, **done}, output)


def _stored(context: typer.Context, uri: str | None, place: Place, request_id: str) -> dict[str, Any]:
    """Store a backup, and report it."""
    digest = hashlib.sha256()
    with connected(context, uri, timeout=PART_SECONDS_MAX) as connection:
        begun = connection.admin.begin_backup(request_id)

        def parts() -> Generator[bytes]:
            with closing(connection.admin.download_backup(begun)) as archive:
                for part in archive:
                    digest.update(part)
                    yield part

        with closing(parts()) as archive:
            place.store(archive, begun.bytes)
    return _report(begun.bytes, begun.vhost_count, digest.hexdigest(), begun.data_id, begun.version)


def _stored_before(place: Place, target: str, request_id: str) -> dict[str, Any] | None:
    """Report the backup that an earlier attempt stored and could not report; None for a file of another request."""
    if not request_id:
        return None
    with place.opened() as read:
        found = import_module("penstock.storage").find_stored(read, target, request_id)
    if found is None:
        return None
    return _report(found.bytes, found.vhost_count, found.sha256, found.data_id, found.version)


def _report(size: int, vhost_count: int, sha256: str, data_id: str, version: str) -> dict[str, Any]:
    return {"bytes": size, "vhosts": vhost_count, "sha256": sha256, "data_id": data_id, "version": version}


@app.command()
def delete(
    target: Target,
    sha256: Annotated[str | None, typer.Option("--sha256", help="Delete only a file with this digest.")] = None,
    output: Output = None,
) -> None:
    """Delete a downloaded backup; none is no error."""
    storage = import_module("penstock.storage")
    place = place_of(target)
    if sha256 is not None and not re.fullmatch("[0-9a-fA-F]{64}", sha256):
        raise ValueError(f"'{sha256}' is not a SHA-256 of 64 hexadecimal digits")
    try:
        with place.opened() as read:
            first = read(storage.BLOCK)
            is_archive = storage.is_archive(first)
            found = digest_of(first, read) if sha256 is not None and is_archive else ""
    except FileNotFoundError:
        place.delete()  # what a download that was killed left
        print_done(f"{target} does not exist", {"target": target, "deleted": False}, output)
        return
    if not is_archive:
        raise ValueError(f"'{target}' is not an archive of a backup, and was not deleted")
    if sha256 is not None and found != sha256.lower():
        raise ValueError(f"'{target}' is another backup, with the SHA-256 {found}, and was not deleted")
    place.delete()
    print_done(f"{target} deleted", {"target": target, "deleted": True}, output)


def _end(number: int, _: object) -> None:
    """End the process by an exception, so that what was stored so far is removed."""
    raise SystemExit(128 + number)


def digest_of(first: bytes, read: Callable[[int], bytes]) -> str:
    """Return the SHA-256 of an archive that begins with these bytes, in hexadecimal."""
    digest = hashlib.sha256(first)
    while part := read(READ_BYTES):
        digest.update(part)
    return digest.hexdigest()
