"""Clients of AMQP at any broker of a cluster, which relays them to the leader, also after another one leads."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from threading import Event, Thread

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelClosedByBroker,
    ConnectionWrongStateError,
    UnroutableError,
)

import penstock
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
MORE, PAUSE_SECONDS = 50, 0.05
DURABLE = pika.BasicProperties(delivery_mode=2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    with ServingCluster(tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.until_all_in_sync()
        yield cluster


def follower_of(leader: str) -> str:
    return next(name for name in NAMES if name != leader)


@contextmanager
def open_at(
    cluster: ServingCluster, name: str, vhost: str = "/", user: str = "guest", password: str = "guest"
) -> Iterator[pika.BlockingConnection]:
    host, _, port = cluster.amqp[name].partition(":")
    credentials = pika.PlainCredentials(user, password)
    connection = pika.BlockingConnection(
        pika.ConnectionParameters(host, int(port), vhost, credentials, socket_timeout=SECONDS_MAX)
    )
    try:
        yield connection
    finally:
        with suppress(AMQPError):
            connection.close()


def taken(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    found = []
    for method, _, body in channel.consume(queue):
        channel.basic_ack(method.delivery_tag)
        found.append(body)
        if len(found) == count:
            break
    channel.cancel()
    return found


@pytest.mark.parametrize("name", NAMES)
def test_a_client_at_any_broker_does_everything(cluster: ServingCluster, name: str) -> None:
    queue = f"everything-{name}"
    with open_at(cluster, name) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.topic", f"{name}.*")
        channel.confirm_delivery()
        channel.basic_publish("amq.topic", f"{name}.x", b"1", DURABLE, mandatory=True)
        with pytest.raises(UnroutableError):
            channel.basic_publish("", "nowhere", b"back", mandatory=True)
        channel.basic_publish("", queue, b"x" * 500_000, DURABLE, mandatory=True)
        method, _, body = channel.basic_get(queue)
        assert body == b"1"
        channel.basic_nack(method.delivery_tag)
        assert taken(channel, queue, 2) == [b"1", b"x" * 500_000]

        other = connection.channel()
        other.tx_select()
        other.basic_publish("", queue, b"taken back")
        other.tx_rollback()
        other.basic_publish("", queue, b"committed", DURABLE)
        other.tx_commit()
        assert other.basic_get(queue, auto_ack=True)[2] == b"committed"

        own = other.queue_declare("", exclusive=True).method.queue
        with (
            open_at(cluster, follower_of(name)) as another,
            pytest.raises(ChannelClosedByBroker, match="RESOURCE_LOCKED"),
        ):
            another.channel().queue_declare(own, passive=True)
    with open_at(cluster, follower_of(name)) as another, pytest.raises(ChannelClosedByBroker, match="NOT_FOUND"):
        another.channel().queue_declare(own, passive=True)


def may_enter(cluster: ServingCluster, name: str) -> bool:
    """Return whether a broker has heard of the user and the permission."""
    with suppress(AMQPConnectionError), open_at(cluster, name, "/", "walter", "secret"):
        return True
    return False


def refusals_at(cluster: ServingCluster, name: str) -> Iterator[str]:
    for vhost, user, password in [
        ("/", "walter", "wrong"),
        ("/", "nobody", "x"),
        ("none", "walter", "secret"),
        ("shop", "walter", "secret"),
    ]:
        with pytest.raises(AMQPConnectionError) as refused, open_at(cluster, name, vhost, user, password):
            pass
        yield repr(refused.value)
    with open_at(cluster, name, "/", "walter", "secret") as connection:
        with pytest.raises(ChannelClosedByBroker) as closed:
            connection.channel().queue_declare("mine")
        yield repr(closed.value)
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker) as closed:
            channel.basic_publish("amq.topic", "x", b"1")
        yield repr(closed.value)
        with pytest.raises(ChannelClosedByBroker) as closed:
            connection.channel().basic_get("none")
        yield repr(closed.value)


def test_a_client_is_refused_alike_at_every_broker(cluster: ServingCluster) -> None:
    leader = cluster.leader()
    with penstock.connect(cluster.brokers[leader].uri()) as root:
        root.admin.put_user("walter", "secret")
        root.admin.set_permission("walter", "/", configure="", write="", read="none")
        root.admin.create_vhost("shop")
    for name in NAMES:
        eventually(partial(may_enter, cluster, name), True, SECONDS_MAX)

    refusals = [list(refusals_at(cluster, name)) for name in NAMES]

    assert refusals[0] == refusals[1] == refusals[2]


def test_a_relayed_connection_is_listed_at_both_brokers_with_the_client_s_address(cluster: ServingCluster) -> None:
    leader = cluster.leader()
    with open_at(cluster, follower_of(leader)) as connection:
        connection.channel()
        host, port = connection._impl._transport._sock.getsockname()
        for name in (leader, follower_of(leader)):
            with penstock.connect(cluster.brokers[name].uri() + "?follow=false") as root:
                peers = [each.peer for each in root.admin.list_connections()]
            assert f"{host}:{port}" in peers


class Client(Thread, ABC):
    """Does something at one broker until it is stopped, on a new connection whenever the last one is lost."""

    def __init__(self, cluster: ServingCluster, name: str, queue: str) -> None:
        super().__init__(daemon=True)
        self.name_of_broker = name
        self.stopped = Event()
        self.failures: list[AMQPError] = []
        self._cluster, self._queue = cluster, queue

    def run(self) -> None:
        while not self.stopped.is_set():
            try:
                with open_at(self._cluster, self.name_of_broker) as connection:
                    self.act(connection.channel())
            except AMQPError as failure:
                self.failures.append(failure)
                self.stopped.wait(PAUSE_SECONDS)

    @abstractmethod
    def act(self, channel: BlockingChannel) -> None:
        """Use a connection until the client is stopped, or the connection is lost."""

    @property
    def codes(self) -> set[int | None]:
        """The reply codes of the connections that were lost. Calls on a lost one have none."""
        failures = [each for each in self.failures if not isinstance(each, ConnectionWrongStateError)]
        return {getattr(failure, "reply_code", None) for failure in failures}


class Publisher(Client):
    confirmed = 0

    def act(self, channel: BlockingChannel) -> None:
        channel.confirm_delivery()
        while not self.stopped.is_set():
            channel.basic_publish("", self._queue, self.body(self.confirmed), DURABLE)
            self.confirmed += 1

    def has_confirmed(self, count: int) -> bool:
        return self.confirmed >= count

    def body(self, number: int) -> bytes:
        return f"{self.name_of_broker} {number}".encode()

    def bodies(self) -> set[bytes]:
        """Return what was confirmed."""
        return {self.body(number) for number in range(self.confirmed)}


class Consumer(Client):
    def __init__(self, cluster: ServingCluster, name: str, queue: str) -> None:
        super().__init__(cluster, name, queue)
        self.found = set[bytes]()

    def act(self, channel: BlockingChannel) -> None:
        channel.basic_qos(prefetch_count=50)
        for method, _, body in channel.consume(self._queue, inactivity_timeout=0.1):
            if method is not None:
                self.found.add(bytes(body))
                channel.basic_ack(method.delivery_tag)
            if self.stopped.is_set():
                return


class Load:
    """A publisher and a consumer at each broker."""

    def __init__(self, cluster: ServingCluster, queue: str) -> None:
        with open_at(cluster, NAMES[0]) as connection:
            connection.channel().queue_declare(queue, durable=True)
        self.publishers = [Publisher(cluster, name, queue) for name in NAMES]
        self.consumers = [Consumer(cluster, name, queue) for name in NAMES]
        self.clients: list[Client] = [*self.publishers, *self.consumers]
        for client in self.clients:
            client.start()

    def goes_on(self) -> None:
        """Return when each publisher has some more messages confirmed."""
        before = [publisher.confirmed for publisher in self.publishers]
        for publisher, count in zip(self.publishers, before, strict=True):
            eventually(partial(publisher.has_confirmed, count + MORE), True, SECONDS_MAX)

    def ends(self) -> None:
        """Stop the publishers, and return when everything that was confirmed is consumed."""
        stop(self.publishers)
        confirmed = set[bytes]().union(*(publisher.bodies() for publisher in self.publishers))
        eventually(lambda: confirmed - set[bytes]().union(*(each.found for each in self.consumers)), set(), SECONDS_MAX)


def stop(clients: Sequence[Client]) -> None:
    for client in clients:
        client.stopped.set()
    for client in clients:
        client.join(SECONDS_MAX)


@contextmanager
def load(cluster: ServingCluster, queue: str) -> Iterator[Load]:
    load = Load(cluster, queue)
    try:
        load.goes_on()
        yield load
        load.goes_on()
        load.ends()
    finally:
        stop(load.clients)


def test_clients_that_connect_again_go_through_the_move_of_a_leader(cluster: ServingCluster) -> None:
    with load(cluster, "moved") as moved:
        leader = cluster.leader()
        with penstock.connect(cluster.brokers[leader].uri()) as root:
            root.admin.move_leader("/", follower_of(leader))
        eventually(lambda: all(client.failures for client in moved.clients), True, SECONDS_MAX)

    for client in moved.clients:
        assert client.codes == {320}, client.failures


def test_clients_of_other_brokers_connect_again_when_the_leader_is_killed(cluster: ServingCluster) -> None:
    with load(cluster, "killed") as left:
        killed = cluster.leader()
        cluster.brokers[killed].kill()
        others = [client for client in left.clients if client.name_of_broker != killed]
        eventually(lambda: all(client.failures for client in others), True, SECONDS_MAX)
        cluster.brokers[killed].start()
        cluster.until_all_in_sync()

    for client in others:
        assert client.codes == {320}, client.failures


def test_a_client_at_any_broker_hears_that_its_virtual_host_is_deleted(cluster: ServingCluster) -> None:
    # It is the last test of the cluster: the coordinator keeps the records of shards that are deleted.
    with penstock.connect(cluster.brokers[cluster.leader()].uri()) as root:
        root.admin.create_vhost("brief")
        root.admin.set_permission("guest", "brief", configure="", write="", read="")
        with open_at_each(cluster, "brief") as connections:
            root.admin.delete_vhost("brief")
            for connection in connections:
                with pytest.raises(AMQPConnectionError, match="vhost 'brief' is deleted"):
                    connection.process_data_events(SECONDS_MAX)


@contextmanager
def open_at_each(cluster: ServingCluster, vhost: str) -> Iterator[list[pika.BlockingConnection]]:
    """Connect at each broker, once it has heard of the permission."""
    with ExitStack() as opened:
        connections: list[pika.BlockingConnection] = []

        def is_open(name: str) -> bool:
            with suppress(AMQPConnectionError):
                connections.append(opened.enter_context(open_at(cluster, name, vhost)))
                return True
            return False

        for name in NAMES:
            eventually(partial(is_open, name), True, SECONDS_MAX)
        yield connections
