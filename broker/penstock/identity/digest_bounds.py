"""Cost limits of one password check.

A digest states its own cost, so an imported one could occupy the broker's few checkers for seconds at each guess. Above
these limits it is refused and never checked.
"""

from dataclasses import dataclass
from typing import Final

PASSWORD_BYTES_MAX: Final = 1_024
"""Of any password: longer ones are never checked."""


@dataclass(frozen=True, slots=True)
class DigestBounds:
    """Limits of about ten times the cost of the broker's own digests."""

    argon2_memory_kib: int = 65_536
    """64 MiB, of RFC 9106's second choice; each check takes it from the memory for messages."""
    argon2_passes: int = 4
    argon2_lanes: int = 4
    bcrypt_cost: int = 12
    """Each step doubles the time; libraries use 10 to 12 by default."""

    def __str__(self) -> str:
        memory = f"{self.argon2_memory_kib // 1_024} MiB, {self.argon2_passes} passes and {self.argon2_lanes} lanes"
        return f"argon2id of {memory}, bcrypt of cost {self.bcrypt_cost}"


BOUNDS: Final = DigestBounds()
