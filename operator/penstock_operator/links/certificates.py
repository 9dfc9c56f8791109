"""Checks the certificate that a broker serves, as a client does: its trust and its expiry.

It also writes authorities, certificates and keys to files, as the broker's client reads them.
"""

import hashlib
import os
import socket
import ssl
import tempfile
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from threading import Lock

from penstock.client.uri import Tls

SECONDS = 5.0
PREFIX = "penstock-"
# Half of the folder of the operator's pod.
FILES_BYTES_MAX = 8 << 20
# Files are read when a connection is made, so a file that no call has asked for in this time is not in use.
UNUSED_SECONDS = 600.0
_lock = Lock()


class UntrustedError(Exception):
    """An untrusted certificate; the text is OpenSSL's reason."""


def pem_file(text: str, folder: Path | None = None) -> str:
    """Return a file with this content, readable only by the operator, so open connections keep theirs.

    The files of before stay until `remove_unused_files`, in bounded space: the pod is evicted if its folder is full.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = (folder or Path(tempfile.gettempdir())) / f"{PREFIX}{digest}.pem"
    with _lock:
        if path.exists():
            os.utime(path)
            return str(path)
        _make_space(path.parent, len(text.encode()))
        descriptor, beside = tempfile.mkstemp(dir=path.parent, prefix=PREFIX)  # only the operator may read it
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(beside).replace(path)
    return str(path)


def remove_unused_files(now: datetime, folder: Path | None = None) -> None:
    """Remove the files that nothing asked for lately: keys of Secrets that are gone, or have others now."""
    with _lock:
        for path in (folder or Path(tempfile.gettempdir())).glob(f"{PREFIX}*"):
            # One that cannot be removed must not end the thread of the caller.
            with suppress(OSError):
                if path.stat().st_mtime < now.timestamp() - UNUSED_SECONDS:
                    path.unlink()


def _make_space(folder: Path, byte_count: int) -> None:
    """Remove the files that were used longest ago."""
    found = sorted((each.stat().st_mtime_ns, each.stat().st_size, each) for each in folder.glob(f"{PREFIX}*"))
    total = byte_count + sum(size for _, size, _ in found)
    for _, size, path in found:
        if total <= FILES_BYTES_MAX:
            return
        path.unlink()
        total -= size


def good_until(host: str, port: int, tls: Tls) -> str:
    """Return the expiry of the served certificate.

    Raises UntrustedError, or OSError when the broker does not answer.
    """
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key)
    try:
        with (
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            found = connection.getpeercert() or {}
    except ssl.SSLError as error:
        raise UntrustedError(str(error)) from error
    return str(found.get("notAfter", ""))
