"""murmur3, 32 bits of the x86 kind: assigns a key to a partition of a stream.

Its results must never change, because stored messages are in the partitions that it chose.
"""

from typing import Final

MASK: Final = 0xFFFF_FFFF


def murmur3(content: bytes, seed: int = 0) -> int:
    digest = seed
    whole = len(content) - len(content) % 4
    for start in range(0, whole, 4):
        digest ^= _scrambled(int.from_bytes(content[start : start + 4], "little"))
        digest = (_rotated(digest, 13) * 5 + 0xE654_6B64) & MASK
    if whole < len(content):
        digest ^= _scrambled(int.from_bytes(content[whole:], "little"))
    digest ^= len(content)
    digest = ((digest ^ (digest >> 16)) * 0x85EB_CA6B) & MASK
    digest = ((digest ^ (digest >> 13)) * 0xC2B2_AE35) & MASK
    return digest ^ (digest >> 16)


def _scrambled(block: int) -> int:
    return (_rotated((block * 0xCC9E_2D51) & MASK, 15) * 0x1B87_3593) & MASK


def _rotated(number: int, count: int) -> int:
    return ((number << count) | (number >> (32 - count))) & MASK
