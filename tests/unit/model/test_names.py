"""Names: their length, and invalid ones."""

import pytest

from penstock.model.errors import InvalidArgumentError, TooLargeError
from penstock.model.names import (
    exchange_name,
    is_reserved,
    queue_name,
    routing_key,
    user_name,
    vhost_name,
)


def test_a_name_of_255_bytes_is_taken_and_one_of_256_is_refused() -> None:
    assert queue_name("q" * 255) == "q" * 255

    with pytest.raises(TooLargeError, match="has a name of 256 bytes; at most 255 are allowed") as refused:
        queue_name("q" * 256)
    assert (refused.value.size, refused.value.size_max) == (256, 255)


def test_length_is_counted_in_bytes_of_utf_8() -> None:
    exchange_name("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 127)
    with pytest.raises(TooLargeError):
        exchange_name("\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 128)


def test_half_a_surrogate_pair_is_no_name() -> None:
    with pytest.raises(InvalidArgumentError, match="not valid Unicode"):
        routing_key("\ud800")


def test_queues_exchanges_and_keys_may_be_empty_but_vhosts_and_users_may_not() -> None:
    assert (queue_name(""), exchange_name(""), routing_key("")) == ("", "", "")
    with pytest.raises(InvalidArgumentError, match="vhost '' has an empty name"):
        vhost_name("")
    with pytest.raises(InvalidArgumentError, match="user '' has an empty name"):
        user_name("")


def test_only_the_prefix_is_reserved() -> None:
    assert is_reserved("amq.gen-1")
    assert not is_reserved("amqp")
    assert not is_reserved("my.amq.queue")
