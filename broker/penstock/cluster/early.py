"""Messages of other brokers about shards for which no receiver is chosen yet.

Other brokers are connected before the first shard is open, and wait long for an answer that never comes. So their
messages are kept, up to a number and a size: the oldest are dropped.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from penstock.native import PeerMessage

EARLY_MAX: Final = 256
EARLY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Some calls of the largest size."""


class EarlyMessages:
    """Invariant: `_bytes` is the size of all messages that are kept, and neither limit is exceeded."""

    def __init__(self, count_max: int = EARLY_MAX, bytes_max: int = EARLY_BYTES_MAX) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._messages: deque[PeerMessage] = deque()
        self._bytes = 0

    def put(self, message: PeerMessage) -> None:
        self._messages.append(message)
        self._bytes += len(message.content)
        while len(self._messages) > self._count_max or self._bytes > self._bytes_max:
            self._bytes -= len(self._messages.popleft().content)

    def take(self, shard: bytes) -> list[PeerMessage]:
        """Remove and return the messages about a shard, the oldest first."""
        return self._remove(lambda message: message.shard == shard)

    def forget(self, broker: int) -> None:
        """Drop the messages of a broker whose connection broke: it has given up."""
        self._remove(lambda message: message.broker == broker)

    def _remove(self, is_meant: Callable[[PeerMessage], bool]) -> list[PeerMessage]:
        removed = [message for message in self._messages if is_meant(message)]
        self._messages = deque(message for message in self._messages if not is_meant(message))
        self._bytes -= sum(len(message.content) for message in removed)
        return removed
