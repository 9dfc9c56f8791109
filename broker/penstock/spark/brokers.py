"""The Flight client of a broker that may have several addresses: one is used, and the next when it is unavailable.

In a cluster it goes to the leader that a broker names. A client is taken at its first use, from the ones that this
process keeps. Not for several threads. A process begins with the address that it used last: otherwise each task would
wait again for a host that vanished, or be refused again.
"""

from typing import Any

from pyarrow import flight

from penstock.client.errors import UNAVAILABLE
from penstock.client.following import Following, Hint, Wait, answered, ended
from penstock.client.uri import parse_uri
from penstock.spark.connections import CONNECTIONS

__all__ = ["CHANNEL_OPTIONS", "Addresses"]

PING_EVERY_MS = 10_000
PING_ANSWER_MS_MAX = 20_000
CHANNEL_OPTIONS = [
    ("grpc.keepalive_time_ms", PING_EVERY_MS),
    ("grpc.keepalive_timeout_ms", PING_ANSWER_MS_MAX),
    # gRPC waits a minute for the answer to a ping unless this says otherwise, whatever the option above says.
    ("grpc.http2.ping_timeout_ms", PING_ANSWER_MS_MAX),
    ("grpc.http2.max_pings_without_data", 0),
    # gRPC's own pause between attempts to connect grows to two minutes, longer than most brokers are away.
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # The time for one attempt to connect.
    ("grpc.min_reconnect_backoff_ms", 5_000),
]
# Of so many brokers and virtual hosts it is kept where calls go.
KEPT_MAX = 16
# A leader out of reach is tried again after so many calls.
RELAYED_CALLS = 100
IN_USE: dict[tuple[object, ...], Following] = {}


class Addresses:
    """The addresses of a URI, of which one is in use."""

    def __init__(self, uri: str) -> None:
        address = parse_uri(uri)
        self.vhost = address.vhost
        self.authorization = address.authorization
        self._targets = tuple(address.targets)
        self._scheme = "grpc" if address.tls is None else "grpc+tls"
        self._secrets: dict[str, Any] = {}
        if address.tls is not None:
            authorities, certificate, key, server_name = address.tls.texts()
            named = {
                "tls_root_certs": authorities,
                "cert_chain": certificate,
                "private_key": key,
                "override_hostname": server_name,
            }
            self._secrets = {name: value for name, value in named.items() if value}
        self._whose = (self._targets, self.vhost, address.follows)
        self._following = IN_USE.get(self._whose) or Following(self._targets, address.follows)
        self._client: flight.FlightClient | None = None
        self._answers = 0

    @property
    def count(self) -> int:
        return len(self._targets)

    @property
    def client(self) -> flight.FlightClient:
        if self._client is None:
            self._client = CONNECTIONS.take(self._key, self._connected)
        return self._client

    def answered(self) -> None:
        """Note that the broker in use has answered a call.

        Flight does not show whether it relayed the call: now and then the leader is tried again.
        """
        following, self._answers = self._following, self._answers + 1
        leader = following.unreached if self._answers % RELAYED_CALLS else ""
        self._following = answered(following, following.current, leader)

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Return the headers of calls."""
        pairs = (("authorization", self.authorization), *self._following.headers)
        return [(name.encode(), value.encode()) for name, value in pairs]

    def leave(self, hint: Hint | None = None) -> Wait:
        """Use the leader that a broker named, or the next address, and return how long to wait before.

        A broker that named one has answered, so its connection is kept.
        """
        if self._client is not None:
            (CONNECTIONS.drop if hint is None else CONNECTIONS.used)(self._key, self._client)
            self._client = None
        self._following, wait = ended(self._following, self._following.current, UNAVAILABLE, hint, is_unsent=True)
        if self._whose not in IN_USE and len(IN_USE) >= KEPT_MAX:
            IN_USE.clear()
        IN_USE[self._whose] = self._following
        return wait

    def close(self) -> None:
        """Leave the connection to others of this process."""
        if self._client is not None:
            CONNECTIONS.used(self._key, self._client)
            self._client = None

    @property
    def _key(self) -> tuple[object, ...]:
        """Return what tells connections apart; calls have the credentials, but a broker counts connections by user."""
        return self._location, tuple(self._secrets.items()), self.authorization

    @property
    def _location(self) -> str:
        return f"{self._scheme}://{self._following.current}"

    def _connected(self) -> flight.FlightClient:
        return flight.FlightClient(self._location, generic_options=CHANNEL_OPTIONS, **self._secrets)

    def __str__(self) -> str:
        return ", ".join(self._targets)
