"""Looks at the certificate that a broker serves, as a client does: whether it is trusted and for how long it is
good. And keeps authorities, certificates and keys in files, as the broker's client reads them."""

import hashlib
import os
import socket
import ssl
import tempfile
from pathlib import Path

from penstock.client.uri import Tls

SECONDS = 5.0


class UntrustedError(Exception):
    """The text says why, in OpenSSL's words."""


def pem_file(text: str) -> str:
    """One file per content, readable for the operator alone, so that a connection that was made keeps its own."""
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"penstock-{digest}.pem"
    if not path.exists():
        descriptor, beside = tempfile.mkstemp(dir=path.parent)  # nobody else may read it
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        Path(beside).replace(path)
    return str(path)


def good_until(host: str, port: int, tls: Tls) -> str:
    """When the certificate that is served there ends, as it says itself. Raises UntrustedError, or OSError when nobody
    answers."""
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
