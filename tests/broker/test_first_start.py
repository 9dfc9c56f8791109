"""A broker that others can reach: the default credentials are refused, and it warns about plaintext."""

from pathlib import Path

import pytest

import penstock
from support import Broker
from support.waiting import eventually


class Reachable(Broker):
    """Listens on every address of the machine, and is reached by loopback."""

    @property
    def address(self) -> str:
        return f"0.0.0.0:{self.grpc}"

    def uri(self, vhost: str = "", user: str = "guest", password: str = "guest") -> str:
        return f"penstock://{user}:{password}@127.0.0.1:{self.grpc}/{vhost}"


def test_the_first_start_makes_up_a_password_and_says_once_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "data" / "admin-password"
    with Reachable(tmp_path / "data") as broker:
        password = path.read_text().strip()
        eventually(lambda: broker.log.count(str(path)), 1)
        with penstock.connect(broker.uri(user="admin", password=password)) as connection:
            connection.declare_queue("mine")
            assert [user.name for user in connection.admin.list_users()] == ["admin"]
        with pytest.raises(penstock.NotAuthenticatedError):
            penstock.connect(broker.uri())

        broker.restart()
        broker.stop()
        assert broker.log.count(str(path)) == 1
        assert password not in broker.log
        assert "sent in clear text" in broker.log
