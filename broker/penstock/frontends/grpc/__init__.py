"""gRPC: the listener is native, and what it cannot decide itself is decided here, call by call."""

from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.server import GrpcFrontend
from penstock.services.connections import Connections
from penstock.services.sessions import Sessions

__all__ = ["Connections", "Context", "GrpcFrontend", "Sessions"]
