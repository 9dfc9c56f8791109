"""A broker whose administrator's password is in a file, as Kubernetes mounts a Secret: the file changes under it."""

from pathlib import Path

import pytest

import penstock
from support import Broker
from support.waiting import eventually

GRACE = "3600"


class Mounted(Broker):
    """A broker with a configuration file that names a password file."""

    def __init__(self, folder: Path, grace: str = GRACE) -> None:
        self.file = folder / "password"
        self.file.write_text("one")
        config = folder / "penstock.toml"
        config.write_text(
            f'default_user = "admin"\ndefault_password_file = "{self.file}"\ndefault_password_grace_seconds = {grace}\n'
        )
        super().__init__(folder / "data", "--config", str(config))

    def write(self, password: str) -> None:
        """Exchange the file as the kubelet does."""
        beside = self.file.with_name("next")
        beside.write_text(password)
        beside.replace(self.file)

    def opens(self, password: str) -> bool:
        try:
            with penstock.connect(self.uri(user="admin", password=password)) as connection:
                connection.admin.list_users()
        except penstock.NotAuthenticatedError:
            return False
        return True


@pytest.mark.slow
def test_a_new_password_in_the_file_opens_the_broker_without_a_restart(tmp_path: Path) -> None:
    with Mounted(tmp_path) as broker, penstock.connect(broker.uri(user="admin", password="one")) as before:
        broker.write("two")
        eventually(lambda: broker.opens("two"), True)

        assert broker.opens("one"), "clients get the new password later"
        assert [user.name for user in before.admin.list_users()] == ["admin"], "so does an open connection"
        assert not broker.opens("three")

        broker.restart()
        assert [broker.opens(password) for password in ("two", "one")] == [True, False]
        assert "two" not in broker.log.split()
        assert "KeepAdministrator" in broker.log


@pytest.mark.slow
def test_a_broker_that_restarts_before_the_file_is_new_and_one_that_restarts_after_follow_it(tmp_path: Path) -> None:
    with Mounted(tmp_path, grace="0") as broker:
        broker.restart()
        assert broker.opens("one")

        broker.stop()
        broker.write("two")
        broker.start()
        assert [broker.opens(password) for password in ("two", "one")] == [True, False]

        broker.stop()
        broker.write("")
        broker.start()
        assert broker.opens("two"), "an empty file changes nothing"


@pytest.mark.slow
def test_an_administrator_whom_others_took_over_is_given_back(tmp_path: Path) -> None:
    with Mounted(tmp_path) as broker:
        with penstock.connect(broker.uri(user="admin", password="one")) as connection:
            connection.admin.put_user("other", "x", ["administrator"])
            connection.admin.put_user("admin", "theirs", [])
        eventually(lambda: broker.opens("one"), True)
        assert not broker.opens("theirs")

        with penstock.connect(broker.uri(user="other", password="x")) as connection:
            connection.admin.delete_user("admin")
        eventually(lambda: broker.opens("one"), True)
