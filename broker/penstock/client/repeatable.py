"""The calls that are made again when their connection breaks: by the contract they change nothing.

A call whose connection broke may have reached the broker. In a cluster another broker leads within a second or so, and
answers a call that only reads, so that a program does not hear of it.
"""

from functools import cache

from google.protobuf.descriptor_pb2 import MethodOptions

from penstock.v1 import admin_pb2, messaging_pb2, staging_pb2, streams_pb2

__all__ = ["is_repeatable"]


def is_repeatable(method: str) -> bool:
    """Return whether a method, named by its full path, changes nothing."""
    return method in _repeatable()


@cache
def _repeatable() -> frozenset[str]:
    files = (admin_pb2, messaging_pb2, staging_pb2, streams_pb2)
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    return frozenset(
        f"/{service.full_name}/{method.name}"
        for service in services
        for method in service.methods
        if method.GetOptions().idempotency_level == MethodOptions.NO_SIDE_EFFECTS
    )
