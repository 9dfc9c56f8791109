"""An address written as a URI reads back, and no text makes the reader fail with an undocumented error."""

from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.client.errors import InvalidUriError
from penstock.client.uri import Address, format_uri, parse_uri

text = st.text(st.characters(codec="utf-8"), max_size=60)
vhosts = text.filter(lambda name: 0 < len(name.encode()) <= 255)
hosts = st.sampled_from(["localhost", "127.0.0.1", "broker.example.org", "::1", "fe80::1"])
ports = st.integers(1, 65_535)
addresses = st.builds(
    Address,
    host=hosts,
    port=ports,
    user=text.filter(lambda user: ":" not in user),
    password=text,
    vhost=vhosts,
    others=st.lists(st.tuples(hosts, ports), max_size=15).map(tuple),
)


@given(addresses)
@example(Address(vhost="a/b", user="@", password=":/?#[]@%"))
def test_an_address_survives_its_uri(address: Address) -> None:
    assert parse_uri(format_uri(address)) == address


@given(st.one_of(text, text.map("penstock://".__add__)))
@example("penstock://[::1")
@example("penstock://a:b@c:99999999999/")
@example("penstock://%ff/")
@example("penstock://a,b,c:d@,")
def test_any_text_is_read_or_refused_by_name(uri: str) -> None:
    with suppress(InvalidUriError):
        address = parse_uri(uri)
        assert 1 <= address.port <= 65_535
        assert address.host
        assert address.vhost
