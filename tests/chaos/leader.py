"""The broker that leads a virtual host, found as a client finds it: by the hint in a refusal, or by asking all."""

from collections.abc import Mapping
from threading import Event, Lock
from typing import Any, Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from penstock.v1 import messaging_pb2 as wire
from penstock.v1 import messaging_pb2_grpc as stubs

__all__ = ["Leader", "open_channel"]

ASK_S: Final = 0.7
"""A broker that does not answer for this time is taken for silent."""
PAUSE_S: Final = 0.2
_OPTIONS: Final = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]


def open_channel(address: str) -> grpc.Channel:
    return grpc.insecure_channel(address, options=_OPTIONS)


class Leader:
    """The leader of one virtual host, which several threads look for.

    `current` is the broker that was found last, until one of them has found that it does not serve.
    """

    def __init__(self, vhost: str, queue: str, addresses: Mapping[str, str], credentials: Any) -> None:
        self.vhost = vhost
        self.current: str | None = None
        self._queue = queue
        self._addresses = addresses
        self._credentials = credentials
        self._searching = Lock()
        self._last = next(iter(addresses))
        """The broker that served last: the others are asked first."""

    def lost(self, broker: str) -> None:
        """Say that a broker does not serve."""
        if self.current == broker:
            self.current = None

    def find(self, stopping: Event) -> str | None:
        """Return the broker that serves; None when the search is to stop."""
        with self._searching:
            while self.current is None and not stopping.is_set():
                self.current = self._search()
                if self.current is None:
                    stopping.wait(PAUSE_S)
            if self.current is not None:
                self._last = self.current
            return self.current

    def _search(self) -> str | None:
        """Ask each broker once, the one that a refusal names before the others."""
        waiting = [*(name for name in self._addresses if name != self._last), self._last]
        while waiting:
            asked = waiting.pop(0)
            hint = self._ask(asked)
            if hint == asked:
                return asked
            if hint in waiting:
                waiting.remove(hint)
                waiting.insert(0, hint)
        return None

    def _ask(self, broker: str) -> str:
        """Return the broker's own name if it serves, the name in its refusal, or an empty text."""
        with open_channel(self._addresses[broker]) as channel:
            # It settles nothing. Only a broker that serves the messages of the virtual host answers it.
            request = wire.SettleRequest(vhost=self.vhost, queue=self._queue)
            try:
                stubs.MessagingServiceStub(channel).Settle(request, metadata=self._credentials, timeout=ASK_S)
            except grpc.RpcError as error:
                return _hint_of(error)
        return broker


def _hint_of(error: grpc.RpcError) -> str:
    metadata: Any = error.trailing_metadata() or ()
    details = next((value for key, value in metadata if key == "grpc-status-details-bin"), b"")
    for each in status_pb2.Status.FromString(details).details:
        info = error_details_pb2.ErrorInfo()
        if each.Unpack(info) and info.reason == "NOT_LEADER":
            return str(info.metadata.get("leader", ""))
    return ""
