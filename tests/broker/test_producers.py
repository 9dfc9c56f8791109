"""Named producers with a plain grpcio client: a refused message is never confirmed later without being stored."""

from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import grpc
import pytest

import penstock
from penstock.client.opening import Options, open_transport
from penstock.client.transport import Outcome, PublisherOptions, PublisherPort
from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc
from support import Broker

GUEST = (("authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="),)
ANNA = (("authorization", "Basic YW5uYTpzZWNyZXQ="),)


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


@pytest.fixture
def root(broker: Broker, vhost: str) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri(vhost)) as connection:
        connection.declare_queue("letters")
        yield connection


class Producing:
    """A publish stream of the producer "p"."""

    def __init__(self, channel: grpc.Channel, vhost: str, who: tuple[tuple[str, str], ...] = GUEST) -> None:
        self._waiting: SimpleQueue[wire.PublishRequest | None] = SimpleQueue()
        self._waiting.put(
            wire.PublishRequest(open=wire.PublishOpen(vhost=vhost, producer="p", durability=wire.DURABILITY_OS))
        )
        stub = messaging_pb2_grpc.MessagingServiceStub(channel)
        self._answers = stub.Publish(iter(self._waiting.get, None), metadata=who, timeout=60)
        self._number = 0

    def publish(self, first: int, *places: tuple[str, str]) -> list[str]:
        """Publish one message to each exchange and routing key, from a sequence on; return the answers."""
        batch = wire.PublishBatch(mandatory=True, producer_sequence=first)
        for sequence, (exchange, key) in enumerate(places, first):
            batch.messages.add(body=b"%d" % sequence, exchange=exchange, routing_key=key)
        self._waiting.put(wire.PublishRequest(batch=batch))
        outcomes: dict[int, str] = {}
        while len(outcomes) < len(places):
            answer = next(self._answers)
            for span in answer.confirmed:
                outcomes.update(dict.fromkeys(range(span.first, span.last + 1), "confirmed"))
            outcomes.update((one.number, "returned") for one in answer.returned)
            for span in answer.rejected:
                outcomes.update(dict.fromkeys(range(span.first, span.last + 1), span.reason))
        before, self._number = self._number, self._number + len(places)
        return [outcomes[number] for number in range(before + 1, self._number + 1)]

    def close(self) -> None:
        self._waiting.put(None)
        assert list(self._answers) == []


def letters(connection: penstock.Connection) -> list[int]:
    found = []
    while (message := connection.get("letters")) is not None:
        found.append(int(message.body))
        message.ack()
    return found


def test_what_follows_a_refused_message_of_a_producer_is_refused_until_it_comes_again(
    channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    stream = Producing(channel, vhost)
    missing, behind = stream.publish(5, ("late", ""), ("", "letters"))
    assert "exchange 'late'" in missing
    assert "sequence 5 of this producer was refused" in behind
    root.declare_exchange("late", "fanout")
    root.bind_queue("letters", "late", "")
    stream.close()

    stream = Producing(channel, vhost)
    assert stream.publish(6, ("", "letters")) == [behind]
    assert stream.publish(5, ("late", ""), ("", "letters")) == ["confirmed"] * 2
    assert stream.publish(5, ("", "letters"), ("", "nobody")) == ["confirmed"] * 2, "both are stored already"
    stream.close()

    assert letters(root) == [5, 6]


def test_a_message_that_its_user_may_not_write_holds_back_what_follows(
    channel: grpc.Channel, root: penstock.Connection, vhost: str
) -> None:
    root.admin.put_user("anna", "secret")
    root.admin.set_permission("anna", vhost, "", ".*", "")
    root.declare_exchange("logs", "topic")
    root.bind_queue("letters", "logs", "#")
    root.admin.set_topic_permission("anna", "logs", write="open")
    stream = Producing(channel, vhost, ANNA)

    places = [("logs", "open"), ("logs", "closed"), ("logs", "open"), ("logs", "closed"), ("logs", "open")]
    first, denied, *rest = stream.publish(1, *places)
    assert first == "confirmed"
    assert "closed to this user" in denied
    assert "sequence 2 of this producer was refused" in rest[0]
    assert "confirmed" not in rest
    assert stream.publish(2, *[("logs", "open")] * 4) == ["confirmed"] * 4
    stream.close()

    assert letters(root) == [1, 2, 3, 4, 5]
    root.admin.delete_user("anna")


def outcomes_of(publisher: PublisherPort, count: int) -> list[Outcome]:
    """Return so many outcomes, one for each message."""
    found: dict[int, Outcome] = {}
    for _ in range(600):
        for outcome in publisher.wait(100):
            found.update(dict.fromkeys(range(outcome.first, outcome.last + 1), outcome))
        if len(found) >= count:
            break
    return [found[number] for number in sorted(found)]


@pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])
def test_a_broker_started_anew_is_sent_nothing_past_a_message_that_was_refused(native: bool, tmp_path: Path) -> None:
    """It remembers no refusal: a message that waits for the connection must not make the refused one look stored."""
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as root:
            root.declare_queue("letters", durable=True)
        transport = open_transport(Options.read(broker.uri(), native, "os", 60.0))
        publisher = transport.publisher(PublisherOptions("/", durability=1, producer="p"))
        publisher.publish_many([b"5"], "late", "", sequence=5)
        assert [outcome.code for outcome in outcomes_of(publisher, 1)] == [5], "there is no such exchange"

        broker.kill()
        publisher.publish_many([b"6"], "", "letters", sequence=6)
        broker.start()
        assert [outcome.code for outcome in outcomes_of(publisher, 1)] == [9], "it comes behind the refused one"
        publisher.publish_many([b"5", b"6"], "", "letters", sequence=5)
        assert [outcome.code for outcome in outcomes_of(publisher, 2)] == [0, 0]

        publisher.close()
        transport.close()
        with penstock.connect(broker.uri()) as root:
            assert letters(root) == [5, 6]
