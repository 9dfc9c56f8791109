"""Commands to the broker that uses a data directory, over its Unix socket there: see `in_cluster.operator_socket`."""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

SOCKET: Final = "operator.sock"
ANSWER_BYTES_MAX: Final = 16 * 1024 * 1024


@contextmanager
def short_path(directory: Path) -> Iterator[str]:
    """Yield a path to the socket of a data directory: the system takes no more than 107 bytes of one."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET}"
    finally:
        os.close(descriptor)


def ask_broker(directory: Path, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Return the answer of the broker that uses a data directory. Raises ValueError for its errors, and without one."""
    try:
        with short_path(directory) as path, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(seconds)
            connection.connect(path)
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer = _read(connection)
    except TimeoutError as error:
        raise ValueError(f"the broker of {directory} did not answer within {seconds:.0f} seconds; ask again") from error
    except OSError as error:
        way_out = "run this where a broker of the cluster runs, as its user, with its data directory"
        raise ValueError(f"no broker answers for {directory}: {error.strerror}; {way_out}") from error
    found = json.loads(answer) if answer else {"error": f"the broker of {directory} closed the connection; ask again"}
    if "error" in found:
        raise ValueError(str(found["error"]))
    return dict(found)


def _read(connection: socket.socket) -> bytes:
    content = bytearray()
    while len(content) < ANSWER_BYTES_MAX and (part := connection.recv(65_536)):
        content += part
    return bytes(content)
