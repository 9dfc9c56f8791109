"""From the credentials of a call to the sign-in: which way is taken, and that it hears where the client is."""

import asyncio
import base64

import pytest

from penstock.frontends.grpc.caller import authenticate
from penstock.kit.peers import Source

BASIC = "Basic " + base64.b64encode(b"anna:secret").decode()


class Recording:
    """A sign-in that notes what it was asked."""

    def __init__(self):
        self.asked = []

    async def log_in(self, name, password, *, is_loopback, source):
        assert source == Source("127.0.0.1" if is_loopback else "192.0.2.7", 7)
        self.asked.append(("password", name, password, is_loopback))

    async def log_in_by_token(self, token, *, is_loopback):
        self.asked.append(("token", token, is_loopback))

    async def log_in_by_certificate(self, certificate, *, is_loopback):
        self.asked.append(("certificate", certificate, is_loopback))


@pytest.mark.parametrize(
    ("authorization", "certificate", "asked"),
    [
        (BASIC, b"", ("password", "anna", "secret")),
        (BASIC, b"DER", ("password", "anna", "secret")),
        ("Bearer a.b.c", b"", ("token", "a.b.c")),
        ("Bearer a.b.c", b"DER", ("token", "a.b.c")),
        ("", b"DER", ("certificate", b"DER")),
    ],
)
@pytest.mark.parametrize(("peer", "is_loopback"), [("127.0.0.1:4000", True), ("192.0.2.7:4000", False)])
def test_every_way_to_log_in_hears_whether_the_client_is_on_this_machine(
    authorization, certificate, asked, peer, is_loopback
):
    sign_in = Recording()

    asyncio.run(authenticate(sign_in, authorization, peer, certificate, 7))

    assert sign_in.asked == [(*asked, is_loopback)]
