"""Addresses of this machine; an unreadable one is remote."""

import pytest

from penstock.kit.peers import is_loopback


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("127.0.0.1:5680", True),
        ("unix:/run/penstock/amqp.sock", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("::1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("10.0.0.1:1", False),
        ("[::ffff:10.0.0.1]:1", False),
        ("[2001:db8::1]:1", False),
        ("", False),
        ("localhost:1", False),
        ("127.0.0.1.evil:1", False),
    ],
)
def test_a_peer_is_this_machine_or_it_is_not(peer, expected):
    assert is_loopback(peer) is expected
