"""A backup to a target that takes its time, under load: memory must not grow with the messages that pass meanwhile.

The target is a file system in a file, frozen while the load runs: it needs root, a loop device and mkfs.ext4.
"""

import fcntl
import os
import subprocess
import tempfile
import time
from pathlib import Path

from rig import GUEST, MIB, Broker, CannotRunError, administration, backups, penstock, run

FREEZE, THAW = 0xC0045877, 0xC0045878
ROUNDS, MESSAGES, QUEUES = 14, 100_000, 40
BYTES_MAX = 1.5


def check():
    with tempfile.TemporaryDirectory(prefix="repro-") as own:
        image, mount = Path(own) / "image", Path(own) / "mount"
        mount.mkdir()
        with image.open("wb") as file:
            file.truncate(512 * MIB)
        for command in (["mkfs.ext4", "-q", str(image)], ["mount", "-o", "loop", str(image), str(mount)]):
            try:
                subprocess.run(command, check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError) as error:
                raise CannotRunError(f"no file system in a file can be made here: {error}") from error
        try:
            return _check(mount)
        finally:
            subprocess.run(["umount", "-l", str(mount)], check=True)


def _check(mount):
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="os") as connection, broker.channel() as channel:
            connection.declare_exchange("all", "fanout")
            for number in range(QUEUES):
                connection.declare_queue(f"queue-{number}")
                connection.bind_queue(f"queue-{number}", "all", "")
            _pass(connection, ROUNDS)  # what every run needs once
            time.sleep(1)
            before = broker.rss()
            _pass(connection, ROUNDS)
            time.sleep(1)
            calm = broker.rss() - before
            frozen = os.open(mount, os.O_RDONLY)
            fcntl.ioctl(frozen, FREEZE, 0)
            try:
                request = backups.BackupRequest(directory=str(mount / "copy"))
                backup = administration(channel).Backup.future(request, metadata=GUEST, timeout=240)
                time.sleep(1)
                held = not backup.done()
                before = broker.rss()
                files = len(broker.segments())
                _pass(connection, ROUNDS)
                time.sleep(1)
                grown = broker.rss() - before
                files = len(broker.segments()) - files
                held = held and not backup.done()
            finally:
                fcntl.ioctl(frozen, THAW, 0)
                os.close(frozen)
            answer = "written" if backup.exception(timeout=120) is None else backup.exception().details()
            time.sleep(2)
            after = broker.rss() - before
    count = ROUNDS * MESSAGES * QUEUES
    per_message = grown / count
    if not held:
        raise RuntimeError(f"the backup did not wait for its target: {answer}")
    return per_message > BYTES_MAX, (
        f"{count:,} messages stored and dropped: memory {calm // MIB:+} MiB without a backup, "
        f"{grown // MIB:+} MiB ({per_message:.1f} bytes a message) and {files:+} segments during one that waits, "
        f"{after // MIB:+} MiB after it was {answer}"
    )


def _pass(connection, rounds):
    """Messages come and go: each round publishes to all queues and drops what they hold."""
    for _ in range(rounds):
        connection.publish_many([b"x"] * MESSAGES, exchange="all")
        for number in range(QUEUES):
            connection.purge_queue(f"queue-{number}")


run(check)
