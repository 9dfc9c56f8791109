"""The operator and a broker that a tenant runs, which answers what no broker does."""

import json
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from penstock.client.errors import BrokerError
from penstock.client.uri import Address
from penstock.v1 import admin_pb2
from penstock_operator.api import KINDS, TopologySpec
from penstock_operator.links import Brokers
from penstock_operator.links.brokers import FOREIGN, BrokerUnreachableError
from penstock_operator.links.listings import FOREIGN_LENGTH_MAX, Listings

PLACE = "shop/warehouse"
PAGES = 100
PAGE = 1_000
USER: dict[str, Any] = {"name": "orders", "tags": []}
Answer = Callable[[bytes], bytes]
_handled: Any = grpc.unary_unary_rpc_method_handler


def _empty(_: bytes) -> bytes:
    return b""


class Liar(grpc.GenericRpcHandler):
    """Answers each method as it is told, others with an empty message."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}

    def service(self, call: grpc.HandlerCallDetails) -> Any:
        answer = self.answers.get(call.method.rpartition("/")[2], _empty)
        return _handled(lambda request, _: answer(request))


Fake = tuple[Liar, Address]


@pytest.fixture
def liar() -> Iterator[Fake]:
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    handler = Liar()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, Address("127.0.0.1", port, "admin", "s3cret")
    server.stop(None).wait()


def spec(kind: str) -> TopologySpec:
    made = KINDS[kind].spec.model_validate({"connectionSecretRef": {"name": "warehouse"}, "name": "orders"})
    assert isinstance(made, TopologySpec)
    return made


def find(address: Address, kind: str) -> object:
    brokers = Brokers(lambda: 0.0)
    connection = brokers.get(PLACE, address)
    try:
        return [brokers.listings.find(connection, PLACE, spec(kind)) for _ in range(5)][-1]
    finally:
        brokers.forget(PLACE)


def page(name: str, count: int, token: str) -> bytes:
    queues = [admin_pb2.Queue(name=f"{name}-{number}") for number in range(count)]
    return admin_pb2.ListQueuesResponse(queues=queues, next_page_token=token).SerializeToString()


def test_pages_without_end_end(liar: Fake) -> None:
    """They occupied a worker for ever, and took the memory of the operator."""
    asked = []

    def endless(_: bytes) -> bytes:
        asked.append(1)
        return page(str(len(asked)), PAGE, str(len(asked)) if len(asked) < PAGES else "")

    liar[0].answers["ListQueues"] = endless
    with pytest.raises(BrokerError, match="answers with more than 20000 entries"):
        find(liar[1], "Queue")
    assert len(asked) < PAGES


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"\n\0" * 50_000, "answers with more than 20000 entries"),
        (b"\n\x80\x80\x80\x04" + b"x" * (8 << 20), f"answers with more than {FOREIGN.bytes_max} bytes"),
        (b"\xff" * 20, "cannot be read"),
        (b"\n\x05x", "cannot be read"),
    ],
)
def test_an_answer_that_no_broker_gives_is_refused(liar: Fake, answer: bytes, message: str) -> None:
    liar[0].answers["ListQueues"] = lambda _: answer

    with pytest.raises(BrokerError, match=message):
        find(liar[1], "Queue")


@pytest.mark.parametrize(
    "definitions",
    [
        "[]",
        "not JSON",
        "{}",
        "[" * 100_000,
        json.dumps({"parameters": [], "vhosts": [], "users": [{"name": "web"}], "permissions": []}),
        json.dumps({"parameters": [], "vhosts": [], "users": [{"name": [], "tags": []}], "permissions": []}),
        json.dumps(
            {"parameters": [{"component": "vhost-limits", "vhost": "/", "value": 1}], "vhosts": [{"name": "/"}]}
        ),
    ],
)
def test_definitions_that_are_none_are_refused(liar: Fake, definitions: str) -> None:
    """They were reported as bugs of the operator, with a traceback each time, and not to the object's owner."""
    answer = admin_pb2.ExportDefinitionsResponse(json=definitions.encode()).SerializeToString()
    liar[0].answers["ExportDefinitions"] = lambda _: answer

    with pytest.raises(BrokerError, match="cannot be read"):
        find(liar[1], "User")


def test_a_greeting_that_is_none_is_no_bug(liar: Fake) -> None:
    liar[0].answers["GetVhostLimits"] = lambda _: b"\xff" * 20

    with pytest.raises(BrokerUnreachableError, match="cannot be read"):
        Brokers(lambda: 0.0).get(PLACE, liar[1])


def test_the_lists_of_all_such_brokers_take_bounded_memory(liar: Fake) -> None:
    """Each of many Secrets could make the operator keep a list as long as an answer may be."""
    liar[0].answers["ListQueues"] = lambda _: page("q", 10_000, "")
    connection = Brokers(lambda: 0.0).get(PLACE, liar[1])
    listings = Listings(lambda: 0.0)

    for number in range(5):
        for _ in range(5):
            listings.find(connection, f"shop/{number}", spec("Queue"))

    lengths = [shelf.length for shelf in listings._shelves.values()]
    assert 0 < sum(lengths) <= FOREIGN_LENGTH_MAX
    assert 0 < len(lengths) < 5
    connection.close()


@pytest.mark.parametrize("digest", [["a"], 7, "x" * 1_000_000, "\ud800", "Ä"])
def test_what_is_kept_of_a_digest_is_short_and_goes(liar: Fake, digest: object) -> None:
    """Digests as long as an answer were kept for each user, also after the last object was gone."""
    user = {**USER, "password_hash": digest, "hashing_algorithm": "penstock_random_sha256"}
    document = json.dumps({"parameters": [], "vhosts": [], "users": [user], "permissions": []})
    answer = admin_pb2.ExportDefinitionsResponse(json=document.encode()).SerializeToString()
    liar[0].answers["ExportDefinitions"] = lambda _: answer
    brokers = Brokers(lambda: 0.0)
    found = brokers.listings.find(brokers.get(PLACE, liar[1]), PLACE, spec("User"))
    assert found is not None
    assert brokers.has_password(PLACE, liar[1], found["digest"], "other")
    brokers.has_password(PLACE, liar[1], found["digest"], found["algorithm"])
    brokers.note_password(PLACE, liar[1])
    brokers.rest(PLACE)

    assert 0 < len(str(brokers._proven)) < 1_000
    brokers.leave(PLACE)

    assert not brokers._proven
    assert not brokers._set
    assert not brokers._resting
