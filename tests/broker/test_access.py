"""Authorization end to end: credentials, tags and permissions as a client sees them."""

from collections.abc import Callable, Iterator

import pytest

import penstock
from support import Broker

Permit = Callable[..., penstock.Connection]


@pytest.fixture
def permit(broker: Broker, vhost: str) -> Iterator[Permit]:
    """Return a function that makes a user with permissions and returns a connection of that user."""
    connections: list[penstock.Connection] = []

    def connect(
        configure: str = "", write: str = "", read: str = "", tags: tuple[str, ...] = ()
    ) -> penstock.Connection:
        root.admin.put_user("walter", "secret", tags)
        root.admin.set_permission("walter", vhost, configure, write, read)
        connections.append(penstock.connect(broker.uri(vhost, "walter", "secret")))
        return connections[-1]

    with penstock.connect(broker.uri(vhost)) as root:
        root.declare_queue("jobs")
        yield connect
        for connection in connections:
            connection.close()
        root.admin.delete_user("walter")


@pytest.mark.parametrize(("user", "password"), [("guest", "wrong"), ("nobody", "guest"), ("guest", "")])
def test_wrong_credentials_are_refused_alike(broker: Broker, user: str, password: str) -> None:
    with pytest.raises(penstock.NotAuthenticatedError) as refused:
        penstock.connect(broker.uri(user=user, password=password))

    assert (
        str(refused.value).replace(user, "USER")
        == "user 'USER' could not be authenticated; check the user name and the password"
    )


def test_a_user_without_permissions_in_a_vhost_is_refused(broker: Broker, permit: Permit) -> None:
    permit()

    with (
        pytest.raises(penstock.AccessRefusedError),
        penstock.connect(broker.uri(user="walter", password="secret")) as elsewhere,
    ):
        elsewhere.declare_queue("mine")


def test_configure_is_needed_to_declare(permit: Permit) -> None:
    walter = permit(configure="my-.*")

    walter.declare_queue("my-jobs")

    with pytest.raises(penstock.AccessRefusedError, match="not-my-jobs"):
        walter.declare_queue("not-my-jobs")


def test_write_is_needed_to_publish(permit: Permit) -> None:
    walter = permit(write="amq\\.direct")

    walter.publish(b"a", exchange="amq.direct", routing_key="jobs")

    with pytest.raises(penstock.AccessRefusedError, match=r"amq\.topic"):
        walter.publish(b"a", exchange="amq.topic", routing_key="jobs")


def test_read_is_needed_to_consume(permit: Permit) -> None:
    walter = permit(read="other")

    with pytest.raises(penstock.AccessRefusedError, match="jobs"):
        walter.get("jobs")
    with pytest.raises(penstock.AccessRefusedError, match="jobs"):
        next(iter(walter.consume("jobs", idle_timeout=10)))


def test_a_permission_taken_away_ends_publishing(broker: Broker, vhost: str, permit: Permit) -> None:
    walter = permit(write=".*")
    walter.publish(b"a", exchange="amq.direct", routing_key="jobs")

    with penstock.connect(broker.uri(vhost)) as root:
        root.admin.set_permission("walter", vhost, configure="", write="", read="")

    with pytest.raises(penstock.AccessRefusedError):
        walter.publish(b"b", exchange="amq.direct", routing_key="jobs")


def test_only_an_administrator_changes_users(permit: Permit) -> None:
    walter = permit(configure=".*", write=".*", read=".*")

    with pytest.raises(penstock.AccessRefusedError):
        walter.admin.put_user("mallory", "secret", ["administrator"])
    with pytest.raises(penstock.AccessRefusedError):
        walter.admin.create_vhost("mallorys")


def test_a_new_password_counts_at_once(broker: Broker, vhost: str, permit: Permit) -> None:
    permit(configure=".*")

    with penstock.connect(broker.uri(vhost)) as root:
        root.admin.put_user("walter", "changed")

    with pytest.raises(penstock.NotAuthenticatedError):
        penstock.connect(broker.uri(vhost, "walter", "secret"))
    penstock.connect(broker.uri(vhost, "walter", "changed")).close()
