"""Hints of brokers that do not lead, right and wrong ones, for both transports.

A client goes to the leader, and no hint makes it send its credentials where they would not be safe, or keeps it from
its own addresses.
"""

import asyncio
import base64
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import monotonic
from urllib.parse import quote

import grpc
import pytest
import trustme

import penstock
import penstock.aio
from penstock.client.opening import Options, open_transport
from support.broker import free_ports
from support.cluster_member import ClusterMember

pytestmark = pytest.mark.parametrize("native", [True, False], ids=["native", "pure"])

GUEST = "Basic " + base64.b64encode(b"guest:guest").decode()
PATIENCE_SECONDS = 3.0


def uri_of(*members: ClusterMember, query: str = "") -> str:
    return f"penstock://guest:guest@{','.join(member.address for member in members)}/{query}"


def dead() -> str:
    return f"127.0.0.1:{free_ports(1)[0]}"


def works(uri: str, native: bool) -> None:
    """Get and publish, which only a leader does."""
    with penstock.connect(uri, native=native, timeout=10.0) as connection:
        assert connection.get("jobs") is None
        connection.publish(b"1", routing_key="jobs")


def refused(uri: str, native: bool) -> penstock.PenstockError:
    """Return the error of a call whose time ends between two attempts, or in one."""
    with (
        penstock.connect(uri, native=native, timeout=PATIENCE_SECONDS) as connection,
        pytest.raises((penstock.ConnectionLostError, penstock.DeadlineError)) as failed,
    ):
        connection.get("jobs")
    return failed.value


def test_a_client_goes_to_the_leader_that_a_broker_names(native: bool) -> None:
    with ClusterMember() as leader, ClusterMember(lambda: leader.address) as given:
        works(uri_of(given), native)

        assert leader.bodies == [b"1"]
        # It stays there: the publisher did not ask the other one.
        assert (given.authorizations, leader.authorizations) == ([GUEST], [GUEST, GUEST])


def test_a_client_of_asyncio_goes_there_as_well(native: bool) -> None:
    async def work(uri: str) -> None:
        async with penstock.aio.connect(uri, native=native) as connection:
            await connection.publish(b"1", routing_key="jobs")
            assert await connection.get("jobs") is None

    with ClusterMember() as leader, ClusterMember(lambda: leader.address) as given:
        asyncio.run(work(uri_of(given)))

        assert leader.bodies == [b"1"]


def test_calls_are_relayed_while_the_leader_is_out_of_reach(native: bool) -> None:
    unreachable = dead()
    with ClusterMember(lambda: unreachable, relays=True) as given:
        with penstock.connect(uri_of(given), native=native, timeout=10.0) as connection:
            for number in range(5):
                assert connection.get("jobs") is None
                connection.publish(b"%d" % number, routing_key="jobs")

        assert given.bodies == [b"0", b"1", b"2", b"3", b"4"]
        assert given.refused_count <= 2, "the leader is not tried again for each call"


def test_a_client_goes_to_the_next_leader_when_that_is_in_reach(native: bool) -> None:
    with ClusterMember() as leader:
        named = [dead()]
        with (
            ClusterMember(lambda: named[0], relays=True) as given,
            penstock.connect(uri_of(given), native=native, timeout=10.0) as connection,
        ):
            assert connection.get("jobs") is None
            named[0] = leader.address

            # This call is relayed, and its answer names the leader.
            assert connection.get("jobs") is None
            assert connection.get("jobs") is None

            assert len(leader.authorizations) == 1


def test_a_client_that_does_not_follow_is_relayed(native: bool) -> None:
    with ClusterMember() as leader, ClusterMember(lambda: leader.address, relays=True) as given:
        works(uri_of(given, query="?follow=false"), native)

        assert (leader.bodies, given.bodies, given.refused_count) == ([], [b"1"], 0)


def test_a_leader_out_of_reach_is_found_at_a_given_address(native: bool) -> None:
    unreachable = dead()
    with ClusterMember() as leader, ClusterMember(lambda: unreachable) as given:
        works(uri_of(given, leader), native)

        assert leader.bodies == [b"1"]


def test_a_client_waits_for_a_leader_that_is_elected(native: bool) -> None:
    unreachable = dead()
    with ClusterMember() as leader:
        said = iter([unreachable, "", unreachable, ""])
        with ClusterMember(lambda: next(said, leader.address)) as given:
            works(uri_of(given), native)

        assert leader.bodies == [b"1"]


def test_a_client_of_asyncio_closes_while_no_broker_leads(native: bool) -> None:
    """Calls that waited for a leader had all threads of the connection, so it closed when their time was over."""

    async def work(uri: str) -> list[object]:
        connection = await penstock.aio.connect(uri, native=native, timeout=120.0)
        gets = [asyncio.ensure_future(connection.get("jobs")) for _ in range(20)]
        await asyncio.sleep(0.5)
        await asyncio.wait_for(connection.close(), 60)  # less than the time that the calls have
        return await asyncio.gather(*gets, return_exceptions=True)

    with ClusterMember(lambda: "") as given:
        ends = asyncio.run(work(uri_of(given)))

    assert {isinstance(end, penstock.PenstockError) for end in ends} == {True}, ends


def test_brokers_that_name_each_other_hold_a_call_no_longer_than_its_time(native: bool) -> None:
    members: list[ClusterMember] = []
    with ExitStack() as open_members:
        members.append(open_members.enter_context(ClusterMember(lambda: members[1].address)))
        members.append(open_members.enter_context(ClusterMember(lambda: members[0].address)))
        begun = monotonic()
        error = refused(uri_of(members[0]), native)

        assert monotonic() - begun < 5 * PATIENCE_SECONDS
        assert error.detail.reason in ("NOT_LEADER", "")
        # Hints in a row are bounded, and there is a pause between the rows.
        assert sum(len(member.authorizations) for member in members) < 300


@pytest.mark.parametrize(
    "hint", ["user@127.0.0.1:{port}", "0.0.0.0:{port}", "[::]:{port}", "127.0.0.1:{port}/x", "x" * 600]
)
def test_a_hint_that_is_no_address_is_not_followed(native: bool, hint: str) -> None:
    with ClusterMember() as other, ClusterMember(lambda: hint.format(port=other.port)) as given:
        refused(uri_of(given), native)

        assert other.authorizations == []


def test_a_client_that_is_told_to_stay_does_not_follow(native: bool) -> None:
    with ClusterMember() as leader, ClusterMember(lambda: leader.address) as given:
        error = refused(uri_of(given, query="?follow=false"), native)

        assert (error.detail.reason, error.detail.data["grpc"]) == ("NOT_LEADER", leader.address)
        assert leader.authorizations == []


def test_a_hint_about_another_virtual_host_moves_the_call_alone(native: bool) -> None:
    """The members say that they do not lead "/", which is another one than the connection's."""
    with ClusterMember() as leader, ClusterMember(lambda: leader.address) as given:
        transport = open_transport(Options.read(uri_of(given) + "shop", native, None, 10.0))
        for _ in range(2):
            assert transport.call("/penstock.v1.MessagingService/Get", b"", 10_000) == b""
        transport.close()

        assert (len(given.authorizations), len(leader.authorizations)) == (2, 2)


@contextmanager
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """Listen without TLS; yield the address, and the first bytes of each connection to it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hear() -> None:
            while True:
                try:
                    client, _ = server.accept()
                except OSError:
                    return
                with client:
                    heard.append(client.recv(4_096))

        threading.Thread(target=hear, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


@contextmanager
def secure(leader: str | None, authority: trustme.CA) -> Iterator[ClusterMember]:
    certificate = authority.issue_cert("127.0.0.1")
    pair = (certificate.private_key_pem.bytes(), certificate.cert_chain_pems[0].bytes())
    with ClusterMember(lambda: leader, grpc.ssl_server_credentials([pair])) as member:
        yield member


def secure_uri(member: ClusterMember, authority: trustme.CA, folder: Path) -> str:
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    return f"penstocks://guest:guest@{member.address}/?ca={quote(str(folder / 'ca.pem'))}"


def test_a_client_with_tls_follows_to_a_leader_with_tls(native: bool, tmp_path: Path) -> None:
    authority = trustme.CA()
    with secure(None, authority) as leader, secure(leader.address, authority) as given:
        works(secure_uri(given, authority, tmp_path), native)

        assert leader.bodies == [b"1"]


def test_no_hint_makes_a_client_with_tls_speak_without_it(native: bool, tmp_path: Path) -> None:
    authority = trustme.CA()
    with listening() as (address, heard), secure(address, authority) as given:
        refused(secure_uri(given, authority, tmp_path), native)

    assert heard
    # All of it is the greeting of a TLS handshake.
    assert all(first.startswith(b"\x16\x03") and b"authorization" not in first for first in heard if first)


def test_no_hint_makes_a_client_trust_another_authority(native: bool, tmp_path: Path) -> None:
    authority = trustme.CA()
    with secure(None, trustme.CA()) as stranger, secure(stranger.address, authority) as given:
        refused(secure_uri(given, authority, tmp_path), native)

        assert stranger.authorizations == []
