"""Exact bytes of field tables, and malformed bytes."""

import struct

import pytest

from penstock.model.arguments import Decimal, Timestamp
from penstock.model.field_table import FieldTableError, decode_table, encode_table


def test_each_type_has_its_tag_and_its_bytes_big_endian() -> None:
    assert encode_table({"a": True}) == b"\x01at\x01"
    assert encode_table({"a": 258}) == b"\x01aI\x00\x00\x01\x02"
    assert encode_table({"a": 2**31}) == b"\x01al" + (2**31).to_bytes(8, "big")
    assert encode_table({"a": 1.0}) == b"\x01ad" + struct.pack(">d", 1.0)
    assert encode_table({"a": "hi"}) == b"\x01aS\x00\x00\x00\x02hi"
    assert encode_table({"a": b"hi"}) == b"\x01ax\x00\x00\x00\x02hi"
    assert encode_table({"a": None}) == b"\x01aV"
    assert encode_table({"a": Timestamp(1)}) == b"\x01aT" + bytes(7) + b"\x01"
    assert encode_table({"a": Decimal(2, -1)}) == b"\x01aD\x02\xff\xff\xff\xff"
    assert encode_table({"a": [True]}) == b"\x01aA\x00\x00\x00\x02t\x01"
    assert encode_table({"a": {"b": None}}) == b"\x01aF\x00\x00\x00\x03\x01bV"


def test_equal_arguments_are_equal_bytes() -> None:
    assert encode_table({"b": 1, "a": 2}) == encode_table({"a": 2, "b": 1})


@pytest.mark.parametrize(
    ("encoded", "value"),
    [
        (b"b\xff", -1),
        (b"B\xff", 255),
        (b"s\xff\xfe", -2),
        (b"U\xff\xfe", -2),
        (b"u\xff\xfe", 65534),
        (b"i\xff\xff\xff\xff", 2**32 - 1),
        (b"L\xff\xff\xff\xff\xff\xff\xff\xff", -1),
        (b"f\x3f\x80\x00\x00", 1.0),
        (b"S\x00\x00\x00\x01\xff", b"\xff"),
    ],
)
def test_tags_that_others_write_are_read(encoded: bytes, value: object) -> None:
    assert decode_table(b"\x01a" + encoded) == {"a": value}


def test_a_table_cut_anywhere_is_an_error_or_a_shorter_table() -> None:
    whole = encode_table({"a": 1, "b": {"c": ["x", b"y"]}, "d": Timestamp(3)})
    entry_ends = {0, 7, 7 + 2 + 5 + 2 + 5 + 6 + 6}
    for end in range(len(whole)):
        if end in entry_ends:
            decode_table(whole[:end])
        else:
            with pytest.raises(FieldTableError):
                decode_table(whole[:end])


def test_an_unknown_tag_is_named_with_its_place() -> None:
    with pytest.raises(FieldTableError, match=r"unknown tag b'\?' at byte 2") as refused:
        decode_table(b"\x01a?")
    assert refused.value.at == 2


def test_a_container_longer_than_what_holds_it_is_refused() -> None:
    inner = b"\x01bF\x00\x00\x00\xff"
    with pytest.raises(FieldTableError, match="longer than its parent"):
        decode_table(b"\x01aF" + len(inner).to_bytes(4, "big") + inner)


def test_hostile_nesting_is_refused_not_a_crash() -> None:
    content = b""
    for _ in range(10_000):
        content = b"F" + (len(content) + 2).to_bytes(4, "big") + b"\x01a" + content if content else b"V"
    with pytest.raises(FieldTableError):
        decode_table(b"\x01a" + content)
