"""Checks the certificate that a broker serves, as a client does: its trust and its expiry.

It also writes authorities, certificates and keys to files, as the broker's client reads them.
"""

import hashlib
import os
import socket
import ssl
import tempfile
from pathlib import Path

from penstock.client.uri import Tls

SECONDS = 5.0


class UntrustedError(Exception):
    """An untrusted certificate; the text is OpenSSL's reason."""


def pem_file(text: str) -> str:
    """Return a file with this content, readable only by the operator, so open connections keep theirs."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"penstock-{digest}.pem"
    if not path.exists():
        descriptor, beside = tempfile.mkstemp(dir=path.parent)  # only the operator may read it
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(beside).replace(path)
    return str(path)


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
