"""Every method with every kind of caller: only the right one is accepted. Prints the table of how each call ended."""

from collections.abc import Iterator

import grpc
import pytest

import penstock
from security.walk import METHODS, PUBLIC, SECRET, Caller, call, credentials, expected, methods, services, table
from support import Broker

VHOST = "walked-through"


@pytest.fixture(scope="module")
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    """Return a connection to a broker with a vhost, a queue in it, and a user of each kind."""
    with penstock.connect(broker.uri()) as root:
        for vhost in (VHOST, "another"):
            root.admin.create_vhost(vhost)
            root.admin.set_permission("guest", vhost, ".*", ".*", ".*")
        for user, tags in (("bare", ()), ("elsewhere", ()), ("plain", ()), ("right", ("administrator",))):
            root.admin.put_user(user, SECRET, tags)
        root.admin.set_permission("elsewhere", "another", ".*", ".*", ".*")
        for user in ("plain", "right"):
            root.admin.set_permission(user, VHOST, ".*", ".*", ".*")
        with penstock.connect(broker.uri(VHOST)) as owner:
            owner.declare_queue("kept")
        with grpc.insecure_channel(broker.address) as opened:
            yield opened
        for user in ("bare", "elsewhere", "plain", "right"):
            root.admin.delete_user(user)
        for vhost in (VHOST, "another"):
            root.admin.delete_vhost(vhost)


def test_the_broker_offers_no_service_that_nobody_walks_through(channel: grpc.Channel) -> None:
    ours = {service for service, _, _ in methods()}

    assert set(services(channel)) - ours - set(PUBLIC) == set()
    assert ours <= set(services(channel))


def test_what_every_method_needs_is_written_down() -> None:
    assert {name for _, name, _ in methods()} == set(METHODS)


def test_every_method_lets_in_whom_it_should_and_nobody_else(broker: Broker, channel: grpc.Channel) -> None:
    paths = {name: (f"/{service}/{name}", is_stream) for service, name, is_stream in methods()}
    found: dict[str, list[grpc.StatusCode]] = {name: [] for name in METHODS}
    for caller in Caller:
        for name, method in METHODS.items():
            path, is_stream = paths[name]
            # A connection is closed when log-ins on it fail again and again.
            with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as own:
                code = call(own, path, method.request(VHOST), credentials(caller), is_stream=is_stream)
            found[name].append(code)

    print("\n" + table(found))
    assert found == {name: [expected(method, caller) for caller in Caller] for name, method in METHODS.items()}


@pytest.mark.parametrize("header", ["", "Basic", "Basic !", "Basic Zm9v", "Bearer", "Bearer a.b.c", "Digest x"])
def test_a_header_that_is_no_credentials_lets_nobody_in(channel: grpc.Channel, header: str) -> None:
    method = METHODS["GetStatus"]
    path = "/penstock.v1.AdminService/GetStatus"

    code = call(channel, path, method.request(VHOST), (("authorization", header),), is_stream=False)

    assert code is grpc.StatusCode.UNAUTHENTICATED


def test_a_method_that_does_not_exist_tells_nobody_more_than_that(channel: grpc.Channel) -> None:
    for caller in Caller:
        path = "/penstock.v1.AdminService/DropEverything"
        code = call(channel, path, METHODS["GetStatus"].request(VHOST), credentials(caller), is_stream=False)
        is_known = caller not in (Caller.NOBODY, Caller.WRONG_PASSWORD)
        assert code is (grpc.StatusCode.UNIMPLEMENTED if is_known else grpc.StatusCode.UNAUTHENTICATED)
