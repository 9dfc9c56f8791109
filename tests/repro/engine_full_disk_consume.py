"""A full disk: while a declare waits for space, new consumers must still be admitted, because only they make space.

Mounts a tmpfs of 160 MiB, so it needs root.
"""

import contextlib
import subprocess
import tempfile
import threading
import time
from pathlib import Path

from rig import (
    GUEST,
    MIB,
    Broker,
    CannotRunError,
    Stream,
    admin,
    administration,
    grpc,
    messaging,
    penstock,
    run,
    wire,
)

DISK, SECONDS = 160 * MIB, 8


def check():
    with tempfile.TemporaryDirectory(prefix="repro-") as mount:
        command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", mount]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise CannotRunError(f"no file system can be mounted here: {error}") from error
        try:
            return _check(Path(mount))
        finally:
            subprocess.run(["umount", "-l", mount], check=True)


def _check(disk):
    with Broker(data=disk / "data") as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="os") as connection, broker.channel() as channel:
            connection.declare_queue("letters")
            connection.publish_many([bytes(1_000)] * 1_000, routing_key="letters")
            _fill(disk / "filler")
            time.sleep(2)
            publish = "refused"
            with contextlib.suppress(penstock.PenstockError):
                connection.publish(b"x", routing_key="letters")
                publish = "confirmed"
            waits = _declare_until_one_waits(administration(channel))
            first = wire.ConsumeRequest(open=wire.ConsumeOpen(queue="letters", prefetch=100))
            consumer = Stream(messaging(channel).Consume, first)
            got = []

            def take():
                with contextlib.suppress(grpc.RpcError):
                    for response in consumer:
                        got.extend(response.deliveries.deliveries)

            threading.Thread(target=take, daemon=True).start()
            time.sleep(SECONDS)
            while_full = len(got)
            live, ready = broker.get("/health/live")[0], broker.get("/health/ready")[0]
            (disk / "filler").unlink()
            time.sleep(2)
            after = len(got)
            consumer.call.cancel()
    return while_full == 0, (
        f"disk full (publish {publish}), a declare {'waits' if waits else 'was answered'}: a new consumer "
        f"got {while_full} messages in {SECONDS} s, live {live} ready {ready}; {after} once space was made from outside"
    )


def _declare_until_one_waits(stub):
    """Fill the disk; the last page of the file has space for a few."""
    for number in range(100):
        request = admin.DeclareQueueRequest(queue=admin.Queue(name=f"{number}".ljust(250, "-"), durable=True))
        declare = stub.DeclareQueue.future(request, metadata=GUEST, timeout=40)
        with contextlib.suppress(grpc.RpcError):
            try:
                declare.result(timeout=1)
            except grpc.FutureTimeoutError:
                return True
    return False


def _fill(path):
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (MIB, 4096, 1):
            with contextlib.suppress(OSError):
                while True:
                    if file.write(b"\1" * size) < size:
                        break


run(check)
