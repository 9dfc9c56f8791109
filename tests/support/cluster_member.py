"""A broker of a cluster as clients see it, on a gRPC server in this process.

It leads, or says which broker does, or relays calls to that one.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status

from penstock.v1 import messaging_pb2

__all__ = ["ClusterMember", "not_leader"]

UNAVAILABLE = 14
THREADS = 16
MESSAGES = "/penstock.v1.MessagingService/"


def not_leader(leader: str, vhost: str = "/") -> bytes:
    """Return the details of a refusal that names the leader's address, or none."""
    packed = AnyMessage()
    metadata = {"kind": "vhost", "name": vhost, "leader": "mq-1" if leader else "", "grpc": leader}
    packed.Pack(ErrorInfo(reason="NOT_LEADER", domain="penstock", metadata=metadata))
    details: bytes = Status(code=UNAVAILABLE, message="led by another broker", details=[packed]).SerializeToString()
    return details


class ClusterMember(grpc.GenericRpcHandler):  # type: ignore[misc, unused-ignore]
    """Gets and publishes are refused with what `leader` returns, unless that is None; other calls get no content."""

    def __init__(
        self,
        leader: Callable[[], str | None] = lambda: None,
        credentials: grpc.ServerCredentials | None = None,
        *,
        relays: bool = False,
    ) -> None:
        """Without `relays` it refuses calls where another broker leads, as one whose way there is broken."""
        self.leader = leader
        self.relays = relays
        self.refused_count = 0
        self.authorizations: list[str] = []
        """The credentials of each call that publishes or reads messages, in order."""
        self.bodies: list[bytes] = []
        self._server = grpc.server(ThreadPoolExecutor(THREADS), handlers=[self])
        if credentials is None:
            self.port = self._server.add_insecure_port("127.0.0.1:0")
        else:
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None)

    def service(self, details: Any) -> Any:
        if details.method == f"{MESSAGES}Publish":
            return grpc.stream_stream_rpc_method_handler(self._publish)
        return grpc.unary_unary_rpc_method_handler(
            self._get if details.method == f"{MESSAGES}Get" else lambda _request, _context: b""
        )

    def _get(self, _request: bytes, context: Any) -> bytes:
        self._check(context)
        return b""

    def _publish(self, requests: Iterator[bytes], context: Any) -> Iterator[bytes]:
        next(requests)
        self._check(context)
        number = 0
        for request in requests:
            messages = messaging_pb2.PublishRequest.FromString(request).batch.messages
            self.bodies += [message.body for message in messages]
            first, number = number + 1, number + len(messages)
            yield messaging_pb2.PublishResponse(confirmed=[{"first": first, "last": number}]).SerializeToString()

    def _check(self, context: Any) -> None:
        self.authorizations += [value for key, value in context.invocation_metadata() if key == "authorization"]
        leader = self.leader()
        if leader is None:
            return
        wants_refusal = any(key == "penstock-follows" for key, _ in context.invocation_metadata())
        if self.relays and not wants_refusal:
            context.send_initial_metadata((("penstock-leader", leader),))
        else:
            self.refused_count += 1
            context.set_trailing_metadata((("grpc-status-details-bin", not_leader(leader)),))
            context.abort(grpc.StatusCode.UNAVAILABLE, "led by another broker")
