"""The state that says where a connection's calls go, and the hints that it takes from brokers."""

import pytest
from google.protobuf.any_pb2 import Any
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import UNAVAILABLE
from penstock.client.following import HOPS_MAX, Following, Hint, Step, Wait, answered, ended, hint_in

NOT_FOUND = 5
A, B, X = "a:1", "b:1", "x:1"


def unsent(following: Following, target: str) -> Step:
    return ended(following, target, UNAVAILABLE, None, is_unsent=True)


def broken(following: Following, target: str) -> Step:
    return ended(following, target, UNAVAILABLE, None, is_unsent=False)


def refused(following: Following, target: str, leader: str) -> Step:
    return ended(following, target, UNAVAILABLE, Hint("/", leader), is_unsent=False)


def test_a_named_leader_is_used_at_once_and_kept() -> None:
    following, wait = refused(Following((A, B)), A, X)
    assert (following.current, wait) == (X, Wait.NONE)

    following = answered(following, X)
    assert following.current == X
    following, wait = refused(following, X, B)
    assert (following.current, following.leader, wait) == (B, "", Wait.NONE)


def test_a_named_leader_out_of_reach_is_left_for_the_given_addresses_and_passed_over_once() -> None:
    following, _ = refused(Following((A, B)), A, X)

    following, wait = unsent(following, X)
    assert (following.current, wait) == (A, Wait.NONE)
    following, wait = refused(following, A, X)
    assert (following.current, wait) == (B, Wait.SHORT)
    following, wait = refused(following, B, X)
    assert (following.current, wait) == (X, Wait.NONE)


def test_calls_are_relayed_while_the_leader_is_out_of_reach() -> None:
    following, _ = refused(Following((A,)), A, X)
    assert following.headers == (("penstock-follows", "1"),)

    following, _ = unsent(following, X)
    assert (following.current, following.headers) == (A, ())
    following = answered(following, A, X)
    assert not following.wants_refusals
    # Another one leads, who may be in reach.
    following = answered(following, A, B)
    assert following.wants_refusals


def test_calls_are_relayed_as_well_where_the_leader_is_a_given_address() -> None:
    following, _ = refused(Following((A, B)), A, B)

    following, _ = unsent(following, B)

    assert (following.current, following.wants_refusals) == (A, False)
    assert answered(following, A).wants_refusals


def test_a_relay_that_breaks_or_is_refused_is_not_asked_for_again() -> None:
    following, _ = refused(Following((A,)), A, X)
    following, _ = unsent(following, X)

    assert broken(following, A).following.wants_refusals
    assert refused(following, A, X).following.wants_refusals


def test_an_address_that_no_broker_named_says_nothing_about_relays() -> None:
    assert unsent(Following((A, B)), A).following.wants_refusals


def test_a_client_that_does_not_follow_has_its_calls_relayed() -> None:
    assert not Following((A,), follows=False).wants_refusals


def test_every_given_address_is_tried_before_the_wait() -> None:
    following, wait = unsent(Following((A, B)), A)
    assert (following.current, wait) == (B, Wait.NONE)
    following, wait = unsent(following, B)
    assert (following.current, wait) == (A, Wait.LONG)


def test_a_leader_whose_connection_broke_is_left_for_the_address_that_named_it() -> None:
    following, _ = refused(Following((A, B)), A, X)

    following, wait = broken(following, X)

    assert (following.current, wait) == (A, Wait.LONG)
    assert broken(following, A) == (Following((A, B), at=1, hops=1), Wait.LONG)


def test_without_a_leader_the_next_given_address_is_asked_soon() -> None:
    following, wait = refused(Following((A, B)), A, "")
    assert (following.current, wait) == (B, Wait.SHORT)
    following, wait = refused(following, B, B)
    assert (following.current, wait) == (A, Wait.SHORT)


def test_hints_in_a_row_are_bounded() -> None:
    following, hops = Following((A,)), 0
    while (step := refused(following, following.current, f"x{hops}:1")).wait is Wait.NONE:
        following, hops = step.following, hops + 1

    assert (hops, step.following.current) == (HOPS_MAX, A)


def test_an_answer_ends_a_row_of_hints() -> None:
    following, _ = refused(Following((A,)), A, X)

    assert answered(following, X).hops == 0
    assert ended(following, X, NOT_FOUND, None, is_unsent=False).following.hops == 0


def test_no_hint_is_followed_that_should_not_be() -> None:
    following, wait = refused(Following((A,), follows=False), A, X)

    assert (following.current, wait) == (A, Wait.SHORT)


def test_an_event_of_an_address_that_was_left_changes_nothing() -> None:
    following, _ = broken(Following((A, B)), A)

    assert refused(following, A, X) == (following, Wait.NONE)
    assert unsent(following, A) == (following, Wait.NONE)


@given(st.lists(st.sampled_from(["unsent", "broken", "", A, X, "y:1"]), max_size=60))
def test_whatever_brokers_say_the_given_addresses_are_gone_back_to(events: list[str]) -> None:
    following, elsewhere = Following((A, B)), 0
    for event in events:
        target = following.current
        end = {"unsent": unsent, "broken": broken}.get(event)
        following = (end(following, target) if end else refused(following, target, event)).following
        elsewhere = 0 if following.current in (A, B) else elsewhere + 1
        assert elsewhere <= HOPS_MAX


def details(reason: str, **metadata: str) -> bytes:
    packed = Any()
    packed.Pack(ErrorInfo(reason=reason, domain="penstock", metadata=metadata))
    found: bytes = Status(code=UNAVAILABLE, details=[packed]).SerializeToString()
    return found


def test_a_refusal_to_lead_names_the_virtual_host_and_the_leader() -> None:
    of_vhost = details("NOT_LEADER", kind="vhost", name="/", leader="mq-1", grpc="10.0.0.5:5680")
    of_queue = details("NOT_LEADER", kind="queue", name="jobs", vhost="v", grpc="[::1]:5680")

    assert hint_in(UNAVAILABLE, "", of_vhost) == ("/", "10.0.0.5:5680")
    assert hint_in(UNAVAILABLE, "", of_queue) == ("v", "[::1]:5680")
    assert hint_in(UNAVAILABLE, "", details("NOT_LEADER", name="/")) == ("/", "")


def test_other_refusals_have_no_hint() -> None:
    assert hint_in(UNAVAILABLE, "", details("BUSY", grpc="10.0.0.5:5680")) is None
    assert hint_in(NOT_FOUND, "", details("NOT_LEADER", grpc="10.0.0.5:5680")) is None
    assert hint_in(UNAVAILABLE, "", b"NOT_LEADER") is None
    assert hint_in(UNAVAILABLE, "", b"") is None


@pytest.mark.parametrize("target", ["mq-0.mq:5680", "10.0.0.5:1", "[::1]:65535", "h:5680"])
def test_a_hint_is_a_host_and_a_port(target: str) -> None:
    assert hint_in(UNAVAILABLE, "", details("NOT_LEADER", name="/", grpc=target)) == ("/", target)


@pytest.mark.parametrize(
    "target",
    [
        *("h", "h:", "h:0", "h:65536", "h:05", "h:+5", ":5680", "u@h:1", "h/p:1", "h h:1", "-h:1", "0.0.0.0:1"),
        *(
            "[::]:1",
            "[0:0::0]:1",
            "::1:5",
            "[h]:1",
            "h\n:1",
            "h:1\n",
            "http://h:1",
            "h:1:2",
            "unix:/tmp/s",
            "h" * 300 + ":1",
        ),
    ],
)
def test_any_other_text_is_no_hint(target: str) -> None:
    assert hint_in(UNAVAILABLE, "", details("NOT_LEADER", name="/", grpc=target)) == ("/", "")
