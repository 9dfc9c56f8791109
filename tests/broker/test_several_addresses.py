"""A URI with several addresses of one broker, for both transports: the next one is used when one is gone."""

from contextlib import ExitStack

import pytest

import penstock
from support import Broker
from support.broker import free_ports
from support.stopping_proxy import StoppingProxy

pytestmark = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])


def uri_of(*ports: int) -> str:
    return f"penstock://guest:guest@{','.join(f'127.0.0.1:{port}' for port in ports)}/"


def test_an_address_without_a_broker_is_passed_over(broker: Broker, native: bool) -> None:
    dead, other = free_ports(2)

    with penstock.connect(uri_of(dead, other, broker.grpc), native=native) as connection:
        connection.declare_queue("several")
        connection.publish(b"1", routing_key="several")
        message = connection.get("several", auto_ack=True)

        assert message is not None
        assert message.body == b"1"
        connection.delete_queue("several")


def test_without_a_broker_at_any_address_the_error_names_them_all(native: bool) -> None:
    first, second = free_ports(2)

    with pytest.raises(penstock.ConnectionLostError) as failed:
        penstock.connect(uri_of(first, second).replace("guest@", "s3cret@"), native=native)

    assert f"no broker answers at 127.0.0.1:{first}, 127.0.0.1:{second}: " in str(failed.value)
    assert f"127.0.0.1:{first}: " in str(failed.value)
    assert "s3cret" not in str(failed.value)


def test_publishers_readers_and_consumers_go_on_at_the_next_address(broker: Broker, native: bool) -> None:
    proxy, first_address = StoppingProxy(broker.grpc), ExitStack()
    first_address.enter_context(proxy)

    with first_address, penstock.connect(uri_of(proxy.port, broker.grpc), native=native) as connection:
        connection.declare_stream("lines")
        connection.declare_queue("jobs")
        lines = connection.stream("lines")
        reader, consumption = lines.read("first"), connection.consume("jobs")
        messages, jobs = iter(reader), iter(consumption)
        lines.publish_many([b"%d" % number for number in range(10)])
        connection.publish(b"1", routing_key="jobs")
        read = [next(messages).body for _ in range(5)]
        received = {next(jobs).body}
        assert proxy.connections == 1

        first_address.close()
        lines.publish_many([b"%d" % number for number in range(10, 20)])
        connection.publish(b"2", routing_key="jobs")

        read += [next(messages).body for _ in range(15)]
        # The first message was unacked when its connection broke, so it comes again.
        received |= {next(jobs).body, next(jobs).body}
        assert read == [b"%d" % number for number in range(20)]
        assert received == {b"1", b"2"}
        consumption.close()
        reader.close()
        connection.delete_stream("lines")
        connection.delete_queue("jobs")
