"""gRPC: the listener is native, and what it cannot decide itself is decided here, call by call."""

from penstock.frontends.grpc.native_listener import NativeListener
from penstock.frontends.grpc.server import GrpcFrontend

__all__ = ["GrpcFrontend", "NativeListener"]
