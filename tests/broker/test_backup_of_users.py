"""Backups while users and virtual hosts come and go: messages are restored with the permissions of the same time."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import penstock
from penstock.storage import directory_name, read_users, read_vhosts, restore_backup
from support import Broker, eventually

SECRET = "secret"
LATE = "note.json"
"""A file whose copy waits until somebody writes to it."""


@contextmanager
def a_slow_backup(broker: Broker, admin: penstock.Connection, vhost: str, copy: Path) -> Iterator[None]:
    """Make a backup whose copy of one virtual host waits for the end of the block; all others are copied."""
    late = broker.data_dir / directory_name(vhost) / LATE
    os.mkfifo(late)
    making = threading.Thread(target=lambda: admin.admin.backup(str(copy)))
    making.start()
    try:
        eventually((copy / directory_name(vhost)).is_dir, True)
        yield
    finally:
        late.write_text("[]")
        making.join()
    late.unlink()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as started:
        yield started


@pytest.fixture
def admin(broker: Broker) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri()) as connection:
        for vhost in ("blue", "slow"):
            connection.admin.create_vhost(vhost)
        for user in ("anna", "ben"):
            connection.admin.put_user(user, SECRET)
        connection.admin.set_permission("anna", "blue", ".*", ".*", ".*")
        yield connection


def delete_vhost(admin: penstock.Connection, vhost: str) -> None:
    """Delete it as soon as its copy is written."""

    def deleted() -> bool:
        try:
            admin.admin.delete_vhost(vhost)
        except penstock.PreconditionFailedError:
            return False
        return True

    eventually(deleted, True)


def test_a_vhost_made_anew_during_a_backup_gives_its_users_nothing_of_the_copy(
    broker: Broker, admin: penstock.Connection, tmp_path: Path
) -> None:
    """The copy had the messages of the deleted one and the permissions of the new one, and of one that it had not."""
    with a_slow_backup(broker, admin, "slow", tmp_path / "copy"):
        delete_vhost(admin, "blue")
        for vhost in ("blue", "new"):
            admin.admin.create_vhost(vhost)
            admin.admin.set_permission("ben", vhost, ".*", ".*", ".*")

    restore_backup(tmp_path / "copy", tmp_path / "restored")
    assert read_vhosts(tmp_path / "restored" / "vhosts.json") == ["/", "blue", "slow"]
    users = read_users(tmp_path / "restored" / "users.json") or []
    assert {user.name: list(user.permissions) for user in users if user.name != "guest"} == {
        "anna": ["blue"],
        "ben": [],
    }


def test_a_user_deleted_during_a_backup_leaves_no_producer_to_one_made_anew_of_the_copy(
    broker: Broker, admin: penstock.Connection, tmp_path: Path
) -> None:
    """The copy had the producers of a user that it had not."""
    for user in ("guest", "anna"):
        admin.admin.set_permission(user, "slow", ".*", ".*", ".*")
    with penstock.connect(broker.uri("slow", "anna", SECRET)) as anna:
        anna.declare_stream("events")
        with anna.stream("events").publisher("loader") as publisher:
            publisher.publish(b"x", sequence=7)
    with a_slow_backup(broker, admin, "slow", tmp_path / "copy"):
        admin.admin.delete_user("anna")

    restore_backup(tmp_path / "copy", tmp_path / "restored")
    (tmp_path / "restored" / directory_name("slow") / LATE).unlink()
    with Broker(tmp_path / "restored") as restored, penstock.connect(restored.uri("slow")) as connection:
        users = {user.name for user in connection.admin.list_users()}
        owners = {producer.owner for producer in connection.admin.list_producers()}
        assert owners <= users
        assert "anna" in users, "the copy is as of when it began"
