"""The hash that partitions keys: results agree with other implementations."""

import pytest

from penstock.routing.murmur3 import murmur3


@pytest.mark.parametrize(
    ("content", "seed", "expected"),
    [
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"", 0xFFFFFFFF, 0x81F16F39),
        (b"test", 0, 0xBA6BD213),
        (b"test", 0x9747B28C, 0x704B81DC),
        (b"Hello, world!", 0, 0xC0363E43),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
        (b"The quick brown fox jumps over the lazy dog", 0, 0x2E4FF723),
        (b"The quick brown fox jumps over the lazy dog", 0x9747B28C, 0x2FA826CD),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0, 0xF55B516B),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
    ],
)
def test_a_key_has_the_hash_that_everybody_gives_it(content: bytes, seed: int, expected: int) -> None:
    assert murmur3(content, seed) == expected
