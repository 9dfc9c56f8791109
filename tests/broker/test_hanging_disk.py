"""A virtual host whose disk hangs: it waits, and the others are served normally."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest

import penstock
from penstock.storage import directory_name
from support import Broker

pytestmark = pytest.mark.slow
DISK_BYTES = 400 << 20
# More than an event loop has threads by default.
MANY = 40


def run(*command: str) -> bool:
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class HangingDisk:
    """A file system that takes no writes while it is frozen.

    Only root can make one; otherwise such tests are skipped.
    """

    def __init__(self, image: Path, undo: ExitStack) -> None:
        self._undo = undo
        self._image = image
        with image.open("wb") as file:
            file.truncate(DISK_BYTES)
        if not run("mkfs.ext4", "-q", str(image)):
            pytest.skip("this machine has no ext4")

    def take(self, folder: Path) -> None:
        """Move the folder's files to it, and mount it in the folder's place."""
        away = folder.with_name("away")
        folder.rename(away)
        folder.mkdir()
        if not run("mount", "-o", "loop", str(self._image), str(folder)):
            pytest.skip("this user may not mount a file system")
        self._undo.callback(run, "umount", "--lazy", str(folder))
        shutil.rmtree(folder / "lost+found")
        shutil.copytree(away, folder, dirs_exist_ok=True)
        shutil.rmtree(away)


class House:
    """A broker, and the disk of its virtual host "slow"."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.folder = broker.data_dir / directory_name("slow")

    def freeze(self) -> None:
        if not run("fsfreeze", "-f", str(self.folder)):
            pytest.skip("this user may not freeze a file system")

    def thaw(self) -> None:
        run("fsfreeze", "-u", str(self.folder))


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with ExitStack() as undo, Broker(tmp_path / "data") as broker:
        disk = HangingDisk(tmp_path / "image", undo)
        with penstock.connect(broker.uri()) as connection:
            connection.admin.create_vhost("slow")
            connection.admin.set_permission("guest", "slow", ".*", ".*", ".*")
        broker.stop()
        house = House(broker)
        disk.take(house.folder)
        broker.start()
        yield house
        house.thaw()  # a process that waits for a frozen disk does not die


def purge(connection: penstock.Connection) -> None:
    connection.purge_queue("letters")


def delete(connection: penstock.Connection) -> None:
    connection.delete_queue("letters")


def publish_to_a_log_of_its_own(connection: penstock.Connection) -> None:
    connection.stream("own").publish(b"late")


def store_an_offset(connection: penstock.Connection) -> None:
    connection.stream("shared").store("group", 1)


@pytest.mark.parametrize(
    ("work", "times"),
    [(purge, 1), (delete, 1), (publish_to_a_log_of_its_own, 1), (store_an_offset, MANY)],
    ids=["purge", "delete", "own-log", "offsets"],
)
def test_a_disk_that_hangs_keeps_no_other_virtual_host_waiting(
    house: House, work: Callable[[penstock.Connection], None], times: int
) -> None:
    """Earlier, declarations, new consumers and health checks of all of them waited for it."""
    broker = house.broker
    slow, other, calm = (penstock.connect(broker.uri(vhost), timeout=20) for vhost in ("slow", "slow", ""))
    slow.declare_queue("letters")
    slow.publish_many([b"letter"] * 10, routing_key="letters")
    for name in ("own", "shared"):
        slow.declare_stream(name, dedicated=name == "own")
        slow.stream(name).publish_many([b"line"] * 10)
    house.freeze()

    def attempt(work: Callable[[penstock.Connection], object], connection: penstock.Connection) -> None:
        with suppress(penstock.PenstockError):
            work(connection)

    waiting = [Thread(target=attempt, args=(work, slow)) for _ in range(times)]
    # Whoever looks waits for it, too.
    waiting.append(Thread(target=attempt, args=(lambda connection: connection.admin.list_queues(), other)))
    for thread in waiting:
        thread.start()
    for number in range(20):
        calm.declare_queue(f"calm-{number}")
        calm.publish(b"on time", routing_key=f"calm-{number}")
        assert next(iter(calm.consume(f"calm-{number}", idle_timeout=20))).body == b"on time"
        assert broker.scrape("/health/live")
        assert broker.scrape()

    house.thaw()
    for thread in waiting:
        thread.join()
    for connection in (slow, other, calm):
        connection.close()
