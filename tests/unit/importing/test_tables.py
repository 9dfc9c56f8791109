"""Headers are copied from a message unchanged, once their structure is checked."""

from struct import pack

import pytest

from penstock.importing.lavinmq.tables import DEPTH_MAX, readable_table
from penstock.model.field_table import FieldTableError, decode_table

VALUES = (
    *(
        b"t\x01",
        b"b\xff",
        b"B\xff",
        b"s\xff\xfe",
        b"u\xff\xfe",
        b"I\xff\xff\xff\xff",
        b"i\xff\xff\xff\xff",
        b"l" + b"\xff" * 8,
    ),
    *(
        b"f\x3f\x80\0\0",
        b"d\x3f\xf0" + bytes(6),
        b"D\x02\0\0\0\x05",
        b"T" + bytes(8),
        b"S\0\0\0\x02hi",
        b"x\0\0\0\x01\xff",
    ),
    *(b"A\0\0\0\x03t\x01V", b"F\0\0\0\x03\x01aV", b"A\0\0\0\0", b"F\0\0\0\0", b"V"),
)
EVERY_TAG = b"".join(bytes((2, 0x61, 0x61 + number)) + value for number, value in enumerate(VALUES))


def test_a_table_stays_as_it_was_to_the_byte():
    doubled = b"\x01zV\x01aV\x01zt\x01\x01\xffS\0\0\0\x01\xff"

    assert readable_table(b"") == b""
    assert readable_table(EVERY_TAG) == EVERY_TAG
    assert readable_table(doubled) == doubled


def test_tags_of_other_clients_become_those_with_the_same_bytes():
    inner = b"\x01aL" + pack(">q", -2) + b"\x01bU" + pack(">h", -3)
    table = inner + b"\x01cF" + pack(">I", len(inner)) + inner + b"\x01dA" + pack(">I", 3) + b"U\0\x07"

    found = readable_table(table)

    assert found == table.replace(b"aL", b"al").replace(b"bU", b"bs").replace(b"U\0\x07", b"s\0\x07")
    assert decode_table(found) == decode_table(table)


@pytest.mark.parametrize(
    ("table", "rule", "at"),
    [
        (b"\x01a?", r"unknown tag b'\?'", 2),
        (b"\x05a", "a name longer", 6),
        (b"\x01a", "a name longer", 2),
        (b"\x01aI\0\0", "a value longer", 2),
        (b"\x01aS\0\0", "a value longer", 2),
        (b"\x01aF\0\0\0\x06\x01bS\0\0\0\x09" + b"x" * 9, "a value longer", 9),
    ],
)
def test_what_is_no_table_is_refused_with_its_byte(table, rule, at):
    with pytest.raises(FieldTableError, match=rule) as refused:
        readable_table(table)
    assert refused.value.at == at


def nested(depth):
    content = b"\x01aV"
    for _ in range(depth - 1):
        content = b"\x01aF" + pack(">I", len(content)) + content
    return content


def test_nesting_goes_as_deep_as_a_log_is_read():
    assert readable_table(nested(DEPTH_MAX)) == nested(DEPTH_MAX)
    with pytest.raises(FieldTableError, match="nesting deeper than 64"):
        readable_table(nested(DEPTH_MAX + 1))
