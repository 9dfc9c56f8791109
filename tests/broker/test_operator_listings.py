"""The operator's lists of a real broker: a thing is found as its manifest says, until it is removed."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock.client.errors import InvalidArgumentError
from penstock.client.uri import Address
from penstock_operator.api import KINDS, TopologySpec
from penstock_operator.api.broker_arguments import POLICY
from penstock_operator.desired.topology import drift
from penstock_operator.links import Brokers
from penstock_operator.links.listings import Listings
from penstock_operator.links.topology import put, remove
from support.broker import Broker

HOST = "here"
LIMITS = {"maxConnections": 3, "publishRate": 4, "publishBytesRate": 5, "maxInFlightBytes": 6, "maxMessageBytes": 7}
PATTERNS = {"configure": "a", "write": "b", "read": "c"}
EVERY_ARGUMENT: dict[str, Any] = {
    "x-message-ttl": 60_000,
    "x-expires": 3_600_000,
    "x-max-length": 1_000,
    "x-max-length-bytes": 1_000_000,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "q",
    "x-dead-letter-strategy": "at-least-once",
    "x-delivery-limit": -1,
    "x-max-priority": 5,
    "x-single-active-consumer": True,
    "x-consumer-timeout": 60_000,
}
# In the order in which they need each other.
SPECS: list[tuple[str, dict[str, Any]]] = [
    ("VHost", {"name": "listed", "limits": {**LIMITS, "maxQueues": 2}}),
    ("User", {"name": "web", "tags": ["monitoring", "management"], "limits": {**LIMITS, "maxStreams": 2}}),
    ("User", {"name": "plain"}),
    ("Queue", {"name": "q", "arguments": {"team": "shop", "x-dedicated": True, "size": 3, "share": 0.5}}),
    ("Queue", {"name": "log", "type": "stream", "arguments": {"x-max-age": "7D"}}),
    ("Queue", {"name": "passing", "durable": False}),
    (
        "Queue",
        {"name": "safe", "type": "quorum", "arguments": {"x-delivery-limit": 5, "x-dead-letter-exchange": "shop"}},
    ),
    ("Queue", {"name": "all", "arguments": EVERY_ARGUMENT}),
    ("Stream", {"name": "parts", "partitions": 3, "maxAge": "7D", "maxLengthBytes": 1_000_000}),
    ("Stream", {"name": "one"}),
    ("Exchange", {"name": "shop", "type": "topic", "internal": True, "arguments": {"alternate-exchange": "x"}}),
    ("Exchange", {"name": "h", "type": "headers"}),
    ("Exchange", {"name": "later", "type": "x-delayed-message", "arguments": {"x-delayed-type": "topic"}}),
    ("Exchange", {"name": "ring", "type": "x-consistent-hash", "arguments": {"hash-header": "customer"}}),
    *(
        ("Exchange", {"name": f"of-{kind}", "type": kind})
        for kind in ("x-modulus-hash", "x-random", "x-local-random", "x-recent-history")
    ),
    ("Binding", {"source": "shop", "destination": "q", "routingKey": "a.#"}),
    ("Binding", {"source": "h", "destination": "q", "arguments": {"x-match": "all", "n": 1, "a": "b"}}),
    ("Binding", {"source": "shop", "destination": "h", "destinationType": "exchange"}),
    ("Policy", {"name": "p", "pattern": "^q", "definition": {"alternate-exchange": "x"}, "applyTo": "exchanges"}),
    ("Policy", {"name": "p", "pattern": "^q", "definition": {"durability": "disk"}, "operator": True, "priority": 3}),
    ("Permission", {"user": "web", **PATTERNS}),
    ("TopicPermission", {"user": "web", "exchange": "shop", "write": "a", "read": "b"}),
]


def spec(kind: str, fields: dict[str, Any]) -> TopologySpec:
    made = KINDS[kind].spec.model_validate({"clusterRef": {"name": "mq"}, **fields})
    assert isinstance(made, TopologySpec)
    return made


@pytest.fixture(scope="module")
def connection(broker: Broker) -> Iterator[penstock.Connection]:
    with penstock.connect(broker.uri()) as made:
        yield made


def test_whatever_is_made_is_found_until_it_is_removed(connection: penstock.Connection) -> None:
    specs = [spec(*each) for each in SPECS]
    for each in specs:
        assert Listings(lambda: 0.0).find(connection, HOST, each) is None, each
        put(connection, each, "guest", "secret")
    listings = Listings(lambda: 0.0)
    for each in specs:
        found = listings.find(connection, HOST, each)
        assert found is not None, each
        assert drift(each, found) == [], each

    for each in reversed(specs):
        remove(connection, each)
        assert Listings(lambda: 0.0).find(connection, HOST, each) is None, each


def test_many_queues_are_listed_as_one_is(connection: penstock.Connection) -> None:
    listings = Listings(lambda: 0.0)
    specs = [spec("Queue", {"name": f"many-{number}", "arguments": {"n": number}}) for number in range(10)]
    for each in specs:
        put(connection, each, "guest")

    for each in specs:
        found = listings.find(connection, HOST, each)
        assert found is not None
        assert drift(each, found) == []
    for each in specs:
        remove(connection, each)


def test_a_generated_password_is_checked_without_a_log_in_and_a_client_logs_in_with_it(
    broker: Broker, connection: penstock.Connection
) -> None:
    user, password = spec("User", {"name": "generated"}), secrets.token_urlsafe(24)
    put(connection, user, "guest", password, is_random=True)
    penstock.connect(broker.uri(user="generated", password=password)).close()
    found = Listings(lambda: 0.0).find(connection, HOST, user)
    assert found is not None

    def refuse(address: Address) -> penstock.Connection:
        raise AssertionError(address)

    brokers = Brokers(lambda: 0.0, refuse)
    for tried, is_right in ((password, True), (secrets.token_urlsafe(24), False)):
        address = Address("127.0.0.1", 1, "generated", tried)
        assert brokers.has_password(HOST, address, found["digest"], found["algorithm"]) is is_right
    with pytest.raises(InvalidArgumentError, match="fewer than 32"):
        put(connection, user, "guest", "short", is_random=True)
    remove(connection, user)


def test_a_password_is_known_by_its_digest_and_fits_a_user_at_its_limit(
    broker: Broker, connection: penstock.Connection
) -> None:
    brokers = Brokers(lambda: 0.0)
    user = spec("User", {"name": "counted", "limits": {"maxConnections": 0}})
    put(connection, user, "guest", "right")
    found = Listings(lambda: 0.0).find(connection, HOST, user)
    assert found is not None
    host, port = broker.address.split(":")

    def has(password: str, digest: str) -> bool:
        return brokers.has_password(HOST, Address(host, int(port), "counted", password, "/", None), digest)

    assert has("right", found["digest"])
    assert not has("wrong", found["digest"])
    put(connection, user, "guest", "another")
    after = Listings(lambda: 0.0).find(connection, HOST, user)
    assert after is not None
    assert after["digest"] != found["digest"]
    assert not has("right", after["digest"])
    remove(connection, user)


def test_every_key_of_a_policy_that_the_kind_has_is_one_of_the_broker(connection: penstock.Connection) -> None:
    examples = {key: example(schema) for key, schema in POLICY.items()}
    policy = spec("Policy", {"name": "all", "pattern": "^none$", "applyTo": "streams", "definition": examples})

    put(connection, policy, "guest")
    found = Listings(lambda: 0.0).find(connection, HOST, policy)
    remove(connection, policy)

    assert found is not None
    assert drift(policy, found) == []


def example(schema: dict[str, Any]) -> Any:
    """Return a value that a schema takes."""
    if "enum" in schema:
        return schema["enum"][0]
    return {"integer": schema.get("maximum"), "boolean": True, "string": "7D", "array": [1]}[schema["type"]]


def test_a_wrong_key_of_a_policy_is_refused_by_its_name(connection: penstock.Connection) -> None:
    policy = spec("Policy", {"name": "wrong", "pattern": "q", "definition": {"max-lenght": 5}})

    with pytest.raises(InvalidArgumentError, match="max-lenght"):
        put(connection, policy, "guest")
