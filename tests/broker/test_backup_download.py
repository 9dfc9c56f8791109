"""Downloads of backups by the command line: whole or not there, whoever dies, and new brokers made from them."""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import aio
from support import Broker, eventually
from support.broker import penstock_command
from support.fake_s3 import FakeS3
from support.stopping_proxy import StoppingProxy

BODIES = [number.to_bytes(4, "big") * 5_000 for number in range(1_000)]


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Broker]:
    """Yield a broker with twenty megabytes in a queue."""
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as connection:
            connection.declare_queue("work")
            connection.publish_many(BODIES, routing_key="work")
        yield broker


def run(*arguments: object, environment: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    command = [penstock_command(), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=120, env=os.environ | (environment or {})
    )


def in_background(*arguments: object, environment: dict[str, str] | None = None) -> "subprocess.Popen[str]":
    command = [penstock_command(), *map(str, arguments)]
    variables = os.environ | (environment or {})
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)


def check_restored(data_dir: Path) -> None:
    with Broker(data_dir) as broker, penstock.connect(broker.uri()) as connection:
        assert [each.body for each in connection.consume("work", auto_ack=True, idle_timeout=4)] == BODIES


def test_a_download_is_one_whole_file_of_which_a_broker_is_made(full: Broker, tmp_path: Path) -> None:
    target = tmp_path / "backups" / "x.tar"
    target.parent.mkdir()

    done = run("backup", "download", target, "--uri", full.uri(), "--output", "json")

    assert done.returncode == 0, done.stderr
    content = target.read_bytes()
    with penstock.connect(full.uri()) as connection:
        status = connection.admin.status()
    assert json.loads(done.stdout) == {
        "target": str(target),
        "bytes": len(content),
        "vhosts": 1,
        "sha256": hashlib.sha256(content).hexdigest(),
        "data_id": status.data_id,
        "version": status.version,
    }
    assert [path.name for path in target.parent.iterdir()] == ["x.tar"]
    assert target.stat().st_mode & 0o777 == 0o600

    again = run("backup", "download", target, "--uri", full.uri())
    assert again.returncode == 1
    assert "exists; name another file" in again.stderr

    restored = run("restore", target, "--data-dir", tmp_path / "new", "--if-empty")
    assert restored.returncode == 0, restored.stderr
    repeated = run("restore", target, "--data-dir", tmp_path / "new", "--if-empty", "--output", "json")
    assert json.loads(repeated.stdout) == {"data_dir": str(tmp_path / "new"), "restored": False}
    refused = run("restore", target, "--data-dir", tmp_path / "new")
    assert (refused.returncode, "is not empty" in refused.stderr) == (1, True)
    check_restored(tmp_path / "new")


def test_a_download_to_s3_is_restored_and_deleted(full: Broker, tmp_path: Path) -> None:
    target = "s3://bucket/folder/x.tar"
    with FakeS3() as s3:
        done = run("backup", "download", target, "--uri", full.uri(), "-o", "json", environment=s3.environment)
        assert done.returncode == 0, done.stderr
        [content] = s3.objects.values()
        assert json.loads(done.stdout)["sha256"] == hashlib.sha256(content).hexdigest()
        again = run("backup", "download", target, "--uri", full.uri(), environment=s3.environment)
        assert (again.returncode, "exists" in again.stderr) == (1, True)

        restored = run("restore", target, "--data-dir", tmp_path / "new", environment=s3.environment)
        assert restored.returncode == 0, restored.stderr
        for _ in range(2):
            assert run("backup", "delete", target, environment=s3.environment).returncode == 0
            assert s3.objects == {}
        missing = run("restore", target, "--data-dir", tmp_path / "other", environment=s3.environment)
        assert missing.stderr == f"penstock: cannot use '{target}': no such bucket or object\n"
    check_restored(tmp_path / "new")


@pytest.mark.parametrize("is_in_s3", [False, True])
def test_an_attempt_that_finds_the_file_of_the_same_request_reports_it(
    full: Broker, tmp_path: Path, is_in_s3: bool
) -> None:
    # A pod that died between storing and reporting was replaced by one that failed, as the file existed.
    with FakeS3() as s3:
        target = "s3://bucket/x.tar" if is_in_s3 else str(tmp_path / "x.tar")

        def download(request_id: str) -> "subprocess.CompletedProcess[str]":
            environment = s3.environment | {"PENSTOCK_BACKUP_REQUEST_ID": request_id}
            return run("backup", "download", target, "--uri", full.uri(), "-o", "json", environment=environment)

        def content() -> bytes:
            return s3.objects["bucket/x.tar"] if is_in_s3 else Path(target).read_bytes()

        first = download("uid-1")
        assert first.returncode == 0, first.stderr
        stored = content()

        again = download("uid-1")
        assert (again.returncode, json.loads(again.stdout)) == (0, json.loads(first.stdout))

        for other in ("uid-2", ""):
            refused = download(other)
            assert (refused.returncode, "exists; name another" in refused.stderr) == (1, True)
        assert content() == stored

        if not is_in_s3:
            Path(target).write_bytes(stored[:-1])
            broken = download("uid-1")
            assert (broken.returncode, "is not whole" in broken.stderr) == (1, True)
            assert Path(target).read_bytes() == stored[:-1]


def test_only_archives_of_backups_are_deleted(full: Broker, tmp_path: Path) -> None:
    target, other = tmp_path / "x.tar", tmp_path / "note"
    other.write_text("mine")
    assert run("backup", "download", target, "--uri", full.uri()).returncode == 0

    refused = run("backup", "delete", other)

    assert refused.returncode == 1
    assert refused.stderr == f"penstock: '{other}' is not an archive of a backup, and was not deleted\n"
    assert run("backup", "delete", target).returncode == 0
    assert (other.exists(), target.exists()) == (True, False)
    assert run("backup", "delete", target).returncode == 0


def test_only_the_backup_with_the_digest_is_deleted(full: Broker, tmp_path: Path) -> None:
    # Of two Backups of Kubernetes that name one file, deleting the first one deleted the file of the second.
    target = tmp_path / "x.tar"
    assert run("backup", "download", target, "--uri", full.uri()).returncode == 0
    digest = hashlib.sha256(target.read_bytes()).hexdigest()

    other = run("backup", "delete", target, "--sha256", "ab" * 32)
    assert other.stderr == f"penstock: '{target}' is another backup, with the SHA-256 {digest}, and was not deleted\n"
    wrong = run("backup", "delete", target, "--sha256", "ab")
    assert wrong.stderr == "penstock: 'ab' is not a SHA-256 of 64 hexadecimal digits\n"
    assert (other.returncode, wrong.returncode, target.exists()) == (1, 1, True)

    assert run("backup", "delete", target, "--sha256", digest.upper()).returncode == 0
    assert run("backup", "delete", target, "--sha256", digest).returncode == 0
    assert list(tmp_path.glob("*.tar")) == []


def stopped_download(
    proxy: StoppingProxy, target: str | Path, environment: dict[str, str] | None = None, stop_after: int = 5 << 20
) -> "subprocess.Popen[str]":
    """Begin a download that stands still after some megabytes."""
    proxy.stop_after = stop_after
    uri = f"penstock://guest:guest@127.0.0.1:{proxy.port}/"
    downloading = in_background("backup", "download", target, "--uri", uri, environment=environment)
    eventually(lambda: proxy.stop_after, None)
    return downloading


@pytest.mark.parametrize("is_s3", [False, True])
def test_a_file_of_the_same_request_that_comes_meanwhile_is_reported(full: Broker, tmp_path: Path, is_s3: bool) -> None:
    # On a node that was lost the first pod may still store.
    with FakeS3() as s3, StoppingProxy(full.grpc) as proxy:
        environment = s3.environment | {"PENSTOCK_BACKUP_REQUEST_ID": "uid-1"}
        first, target = tmp_path / "first.tar", "s3://bucket/x.tar" if is_s3 else tmp_path / "x.tar"
        assert run("backup", "download", first, "--uri", full.uri(), environment=environment).returncode == 0
        content = first.read_bytes()
        downloading = stopped_download(proxy, target, environment, stop_after=15 << 20)
        if is_s3:
            s3.objects["bucket/x.tar"] = content
        else:
            first.rename(tmp_path / "x.tar")
        proxy.go()
        output, errors = downloading.communicate(timeout=60)

        assert downloading.returncode == 0, errors
        assert output.endswith(f"stored as {target} by an earlier attempt\n")
        assert (s3.objects["bucket/x.tar"] if is_s3 else (tmp_path / "x.tar").read_bytes()) == content
        assert s3.uploads == {}
        assert list(tmp_path.glob(".*")) == []


def test_a_broker_that_is_killed_meanwhile_leaves_no_file_and_a_failed_command(full: Broker, tmp_path: Path) -> None:
    target = tmp_path / "backups" / "x.tar"
    target.parent.mkdir()
    with StoppingProxy(full.grpc) as proxy:
        downloading = stopped_download(proxy, target)
        full.kill()
        proxy.go()
        _, errors = downloading.communicate(timeout=150)

    assert downloading.returncode == 1
    assert errors.startswith("penstock: ")
    assert list(target.parent.iterdir()) == []
    full.start()
    assert run("backup", "download", target, "--uri", full.uri()).returncode == 0


def test_a_client_that_is_killed_leaves_no_backup_and_the_broker_begins_another(full: Broker, tmp_path: Path) -> None:
    target = tmp_path / "x.tar"
    with StoppingProxy(full.grpc) as proxy:
        downloading = stopped_download(proxy, target)
        running = pytest.raises(penstock.PreconditionFailedError, match="another backup is running")
        with penstock.connect(full.uri()) as connection, running:
            connection.admin.begin_backup()
        downloading.send_signal(signal.SIGKILL)
        downloading.communicate(timeout=60)
        proxy.go()
        assert not target.exists()

        eventually(lambda: "its client went away" in full.log, True)
        assert run("backup", "download", target, "--uri", full.uri()).returncode == 0


@pytest.mark.parametrize("is_s3", [False, True])
def test_a_download_that_is_asked_to_end_leaves_nothing(full: Broker, tmp_path: Path, is_s3: bool) -> None:
    # Kubernetes ends a Job at its deadline so: each time the volume kept a part of a backup under another name.
    folder = tmp_path / "backups"
    folder.mkdir()
    with FakeS3() as s3, StoppingProxy(full.grpc) as proxy:
        target = "s3://bucket/x.tar" if is_s3 else folder / "x.tar"
        downloading = stopped_download(proxy, target, s3.environment, stop_after=15 << 20)
        eventually(lambda: bool(s3.uploads) or (folder / ".x.tar.new").exists(), True)
        downloading.send_signal(signal.SIGTERM)
        proxy.go()
        _, errors = downloading.communicate(timeout=60)

        assert downloading.returncode == 143, errors
        assert list(folder.iterdir()) == []
        assert (s3.objects, s3.uploads, s3.aborted) == ({}, {}, int(is_s3))
        eventually(lambda: "its client went away" in full.log, True)


def test_a_full_target_is_named_and_the_broker_goes_on(
    full: Broker, tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=2_048)

    done = run("backup", "download", disk / "x.tar", "--uri", full.uri())

    assert done.returncode == 1
    assert done.stderr == f"penstock: cannot use '{disk}/.x.tar.new': no space left on device\n"
    assert list(disk.iterdir()) == []
    with penstock.connect(full.uri()) as connection:
        connection.publish(b"more", routing_key="work")
        connection.admin.end_backup(connection.admin.begin_backup().id)


def test_a_disk_that_is_too_small_for_a_restore_is_named(
    full: Broker, tmp_path: Path, small_disk: Callable[..., Path]
) -> None:
    disk = small_disk(tmp_path / "disk", kilobytes=2_048)
    assert run("backup", "download", tmp_path / "x.tar", "--uri", full.uri()).returncode == 0

    done = run("restore", tmp_path / "x.tar", "--data-dir", disk)

    assert done.returncode == 1
    assert "free bytes, and the archive needs" in done.stderr
    assert list(disk.iterdir()) == []


def test_a_broker_does_not_start_on_an_unfinished_restore(tmp_path: Path) -> None:
    (tmp_path / "data" / ".restoring").mkdir(parents=True)

    done = run("serve", "--data-dir", tmp_path / "data", "--grpc", "127.0.0.1:0", "--amqp", "off", "--metrics", "off")

    assert done.returncode != 0
    assert (
        "holds a restore that was not completed; run `penstock restore` again, which begins anew"
        in done.stderr + done.stdout
    )


def test_a_backup_is_read_by_the_user_that_began_it(full: Broker) -> None:
    with penstock.connect(full.uri()) as root:
        root.admin.put_user("ada", "secret", ["administrator"])
        root.admin.put_user("eve", "eve", ["monitoring"])
        begun = root.admin.begin_backup()
        with penstock.connect(full.uri(user="ada", password="secret")) as ada:
            with pytest.raises(penstock.NotFoundError):
                ada.admin.read_backup(begun.id, 0)
            ada.admin.end_backup(begun.id)
        with penstock.connect(full.uri(user="eve", password="eve")) as eve:
            with pytest.raises(penstock.AccessRefusedError):
                eve.admin.begin_backup()
            with pytest.raises(penstock.AccessRefusedError):
                eve.admin.read_backup(begun.id, 0)
        assert sum(map(len, root.admin.download_backup(begun))) == begun.bytes
        with pytest.raises(penstock.NotFoundError):
            root.admin.read_backup(begun.id, 0)


def test_a_vhost_can_be_deleted_when_the_download_has_passed_it(full: Broker) -> None:
    copied = pytest.raises(penstock.PreconditionFailedError, match="is being copied by a backup")
    with penstock.connect(full.uri()) as connection:
        connection.admin.create_vhost("small")
        connection.admin.create_vhost("zeta")
        connection.admin.set_permission("guest", "zeta", configure=".*", write=".*", read=".*")
        with penstock.connect(full.uri("zeta")) as zeta:
            zeta.declare_queue("work")
            zeta.publish_many(BODIES[:200], routing_key="work")
        parts = connection.admin.download_backup(connection.admin.begin_backup())
        next(parts)
        with copied:
            connection.admin.delete_vhost("small")

        for _ in range(21):  # 21 MiB: beyond the first two, and within the last one
            next(parts)

        connection.admin.delete_vhost("small")
        with copied:
            connection.admin.delete_vhost("zeta")
        parts.close()
        connection.admin.delete_vhost("zeta")


def test_a_loop_downloads_too(full: Broker) -> None:
    async def download() -> tuple[int, int]:
        async with aio.connect(full.uri()) as connection:
            begun = await connection.admin.begin_backup()
            sizes = [len(part) async for part in connection.admin.download_backup(begun)]
            abandoned = connection.admin.download_backup(await connection.admin.begin_backup())
            await anext(abandoned)
            await abandoned.aclose()
            await connection.admin.end_backup((await connection.admin.begin_backup()).id)
            return sum(sizes), begun.bytes

    found, announced = asyncio.run(download())

    assert found == announced > 20_000_000
