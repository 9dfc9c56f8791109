"""Addresses of AMQP brokers: their parts, and what is refused without a word of the password."""

import pytest

from penstock.cli.amqp_uri import AmqpAddress, parse_amqp_uri


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("amqp://localhost", AmqpAddress("localhost")),
        ("amqp://anna@mq:5673/", AmqpAddress("mq", 5673, "anna")),
        ("amqp://anna:s%2Fe@mq/shop", AmqpAddress("mq", user="anna", password="s/e", vhost="shop")),
        ("amqp://mq/%2F", AmqpAddress("mq")),
        ("amqp://mq//", AmqpAddress("mq")),
        ("amqp://[::1]:5672/a%2Fb", AmqpAddress("::1", vhost="a/b")),
    ],
)
def test_an_address_is_read_with_its_defaults(uri: str, expected: AmqpAddress) -> None:
    assert parse_amqp_uri(uri) == expected


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("penstock://mq", "must start with amqp://"),
        ("amqp:mq", "must start with amqp://"),
        ("amqps://anna:secret@mq", "has no TLS"),
        ("amqp://anna:secret@/", "no host"),
        ("amqp://anna:secret@mq:port/", "must be a number"),
        ("amqp://anna:secret@mq/shop?heartbeat=5", "query"),
        ("amqp://anna:secret@[mq", "host cannot be read"),
    ],
)
def test_what_is_no_address_is_refused_without_its_password(uri: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_amqp_uri(uri)

    assert "secret" not in str(refused.value)
