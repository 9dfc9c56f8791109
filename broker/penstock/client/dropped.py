"""Closes the publishers and readers of the pure transport that a program drops without closing them.

Their threads hold them, so the garbage collector alone would never end them: a dropped publisher would keep the name of
its producer and reconnect for ever. The native transport ends a dropped one by itself.
"""

import weakref
from collections.abc import Sequence

from penstock.client.transport import PublisherPort, ReaderPort

__all__ = ["close_when_dropped"]


def close_when_dropped(owner: object, ports: Sequence[PublisherPort | ReaderPort]) -> None:
    """Close `ports` that are still open, in the background, once nothing refers to `owner` any more."""
    for port in ports:
        abandon = getattr(port, "abandon", None)
        if abandon is not None:
            # The interpreter ends the threads of its own accord when it exits.
            weakref.finalize(owner, abandon).atexit = False
