"""gRPC: the listener is native, and what it cannot decide itself is decided here, call by call."""

from penstock.frontends.grpc.server import GrpcProtocol

__all__ = ["GrpcProtocol"]
