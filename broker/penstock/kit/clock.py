"""The clock as a port: rooms that need the time take a `Clock`, so that tests turn its hands. Wall time may jump;
only `monotonic` may be subtracted."""

import time
from typing import Protocol


class Clock(Protocol):
    """What a room may ask about time."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()
