"""Looks at the certificate that a broker serves, as a client does: whether it is trusted and for how long it is
good. And keeps authorities in files, as the broker's client reads them."""

import hashlib
import socket
import ssl
import tempfile
from pathlib import Path

SECONDS = 5.0


class UntrustedError(Exception):
    """The text says why, in OpenSSL's words."""


def authority_file(authority: str) -> Path:
    """One file per content, so that a connection that was made keeps its own."""
    digest = hashlib.sha256(authority.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"penstock-authority-{digest}.pem"
    if not path.exists():
        beside = path.with_suffix(".new")
        beside.write_text(authority)
        beside.replace(path)
    return path


def good_until(host: str, port: int, authority: str) -> str:
    """When the certificate that is served there ends, as it says itself. Raises UntrustedError, or OSError when nobody
    answers."""
    context = ssl.create_default_context(cadata=authority or None)
    try:
        with (
            socket.create_connection((host, port), SECONDS) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            found = connection.getpeercert() or {}
    except ssl.SSLError as error:
        raise UntrustedError(str(error)) from error
    return str(found.get("notAfter", ""))
