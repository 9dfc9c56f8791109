"""A broker of its own for each script here, bare calls to it, and the verdict.

    python tests/repro/SCRIPT.py [checkout]

Each script reproduces one fault that was found in an earlier version, with a real broker. It exits with 1 while the
fault is there, 0 when it is not, 2 when it could not tell and 3 when this machine or user cannot run it, and prints one
line about what it saw. The broker is that of the checkout named, or of the one that the script lies in, run by its
.venv. Some verdicts depend on how long something took, so run one at a time; the limits of other waiting are generous.
Ports: 21000 to 21999.
"""

import base64
import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

PROJECT = Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else Path(__file__).resolve().parents[2]
PYTHON = PROJECT / ".venv" / "bin" / "python"
if not PYTHON.exists():
    sys.exit(f"{PYTHON} is missing: name the project's directory, and set it up there first")
if Path(sys.prefix).resolve() != (PROJECT / ".venv").resolve():
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

import grpc  # noqa: E402

import penstock  # noqa: E402, F401
from penstock.v1 import admin_pb2 as admin  # noqa: E402, F401
from penstock.v1 import admin_pb2_grpc, messaging_pb2_grpc  # noqa: E402
from penstock.v1 import backup_pb2 as backups  # noqa: E402, F401
from penstock.v1 import messaging_pb2 as wire  # noqa: E402, F401

SECONDS_MAX = 300
MIB = 1024 * 1024


def credentials(user="guest", password="guest"):
    return (("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()),)


GUEST = credentials()


def free_port():
    for _ in range(200):
        port = random.randrange(21000, 22000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
    raise RuntimeError("no free port between 21000 and 21999")


class Broker:
    """One process of `penstock serve` on its own ports and, unless one is given, a data directory that goes with it."""

    def __init__(self, data=None, env=None, wrapper=()):
        self._own = None
        if data is None:
            self._own = tempfile.TemporaryDirectory(prefix="repro-")
            data = Path(self._own.name) / "data"
        self.data = Path(data)
        self.port, self.metrics = free_port(), free_port()
        self.env = dict(env or {})
        self.wrapper = list(wrapper)
        descriptor, path = tempfile.mkstemp(prefix="repro-", suffix=".log")
        os.close(descriptor)
        self.log_path = Path(path)
        self.process: Any = None

    @property
    def uri(self):
        return f"penstock://guest:guest@127.0.0.1:{self.port}/"

    @property
    def pid(self):
        return self.process.pid

    @property
    def log(self):
        return self.log_path.read_text(errors="replace")

    def warnings(self):
        """Return what was logged as a warning or worse so far."""
        levels = ('"level": "warning"', '"level": "error"', '"level": "critical"')
        return [line for line in self.log.splitlines() if any(level in line for level in levels)]

    def spawn(self):
        command = [*self.wrapper, str(PYTHON.with_name("penstock")), "serve", "--data-dir", str(self.data)]
        command += ["--grpc", f"127.0.0.1:{self.port}", "--metrics", f"127.0.0.1:{self.metrics}"]
        command += ["--amqp", "off", "--http", "off"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")} | self.env
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        return self

    def start(self, seconds=120):
        """Start and wait until it is ready; return False when it ended before, as when it refuses its data."""
        self.spawn()
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self.get("/health/ready")[0] == 200:
                return True
            if self.process.poll() is not None:
                return False
            time.sleep(0.03)
        raise RuntimeError(f"not ready after {seconds} s: {self.log[-2000:]}")

    def get(self, path, timeout=10.0):
        """Status and text of an address of the metrics port; status 0: no answer in time."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics}{path}", timeout=timeout) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")
        except OSError as error:
            return 0, str(error)

    def kill(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            self.process.wait()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=120)

    def close(self):
        self.kill()
        self.log_path.unlink(missing_ok=True)
        if self._own is not None:
            self._own.cleanup()

    def rss(self):
        """Resident bytes of the process but for pages of files: those are the kernel's to take back."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
        return 0

    @contextlib.contextmanager
    def watching(self, every=0.02):
        """Yield a list whose only item is the highest `rss` while it is entered."""
        highest, over = [self.rss()], threading.Event()

        def watch():
            while not over.wait(every):
                with contextlib.suppress(OSError):
                    highest[0] = max(highest[0], self.rss())

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield highest
        finally:
            over.set()
            thread.join()

    def vhost_directory(self):
        return next(entry for entry in self.data.iterdir() if len(entry.name) == 40)

    def segments(self):
        return sorted(path for path in self.vhost_directory().glob("msgs.*") if path.suffix[1:].isdigit())

    def channel(self, **options):
        sizes = {"grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1}
        sizes |= {"grpc.use_local_subchannel_pool": 1} | options
        return grpc.insecure_channel(f"127.0.0.1:{self.port}", options=list(sizes.items()))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def messaging(channel):
    return messaging_pb2_grpc.MessagingServiceStub(channel)


def administration(channel):
    return admin_pb2_grpc.AdminServiceStub(channel)


class Stream:
    """A bidirectional call whose requests are sent one at a time; iterate over it for the responses."""

    def __init__(self, method, *first, metadata=GUEST):
        from queue import SimpleQueue

        self._requests: SimpleQueue[object] = SimpleQueue()
        for request in first:
            self.send(request)
        self.call = method(iter(self._requests.get, None), metadata=metadata)

    def send(self, request):
        self._requests.put(request)

    def end(self):
        self._requests.put(None)

    def __iter__(self):
        return self.call

    def __next__(self):
        return next(self.call)


class RawCall:
    """One gRPC call on a socket of its own, so that windows can be tiny and the end abrupt.

    A thread answers settings and pings, and gives no window back. `ends`: nothing follows the requests.
    """

    def __init__(self, port, path, *requests, metadata=GUEST, window=65_535, ends=False):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, struct.pack(">HI", 4, window)))
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "localhost")]
        fields += [("content-type", "application/grpc"), ("te", "trailers"), *metadata]
        head = b"".join(b"\0" + _text(name) + _text(value) for name, value in fields)
        self._socket.sendall(_frame(1, 4, 1, head))
        for request in requests:
            content = request.SerializeToString()
            flags = 1 if ends and request is requests[-1] else 0
            self._socket.sendall(_frame(0, flags, 1, b"\0" + struct.pack(">I", len(content)) + content))
        self.received = 0
        """Bytes of responses."""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with contextlib.suppress(OSError), self._socket.makefile("rb") as stream:
            while len(head := stream.read(9)) == 9:
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                content = stream.read(size)
                self.received += size if kind == 0 else 0
                if kind in (4, 6) and not flags & 1:
                    self._socket.sendall(_frame(kind, 1, 0, content if kind == 6 else b""))

    def close(self):
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def _frame(kind, flags, stream, content):
    return len(content).to_bytes(3, "big") + bytes((kind, flags)) + struct.pack(">I", stream) + content


def _text(text):
    content = text.encode()
    assert len(content) < 127
    return bytes((len(content),)) + content


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else float("nan")


class CannotRunError(Exception):
    """This machine or user lacks what the script needs."""


class _TooLongError(Exception):
    pass


def run(check):
    """`check` returns whether the fault is there, and one line about what was seen."""

    def too_long(*_):
        raise _TooLongError

    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(SECONDS_MAX)
    try:
        is_faulty, seen = check()
        code, word = (1, "FAULT") if is_faulty else (0, "FIXED")
    except _TooLongError:
        code, word, seen = 2, "UNKNOWN", f"no verdict after {SECONDS_MAX} s"
    except CannotRunError as error:
        code, word, seen = 3, "CANNOT RUN", str(error)
    # Whatever else went wrong says nothing about the fault.
    except Exception as error:  # noqa: BLE001  (a script that fails could not tell)
        code, word, seen = 2, "UNKNOWN", f"{type(error).__name__}: {str(error)[:1500]}"
    signal.alarm(0)
    print(f"{word}: {seen}", flush=True)
    # Threads and calls that are still under way end with the process.
    os._exit(code)
