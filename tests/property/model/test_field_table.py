"""Field tables: a written one reads back, and arbitrary bytes cause nothing worse than an error."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.arguments import Value, freeze_arguments
from penstock.model.field_table import FieldTableError, decode_table, encode_table
from support.argument_strategies import arguments


@given(arguments)
def test_what_is_encoded_is_decoded_the_same(table: dict[str, Value]) -> None:
    assert freeze_arguments(decode_table(encode_table(table))) == freeze_arguments(table)


@given(arguments, arguments)
def test_bytes_are_equal_exactly_when_arguments_are(one: dict[str, Value], other: dict[str, Value]) -> None:
    assert (encode_table(one) == encode_table(other)) == (freeze_arguments(one) == freeze_arguments(other))


@given(arguments, st.data())
def test_a_corrupt_table_is_an_error_or_another_table(table: dict[str, Value], data: st.DataObject) -> None:
    encoded = bytearray(encode_table(table))
    for _ in range(data.draw(st.integers(0, 4))):
        if encoded:
            encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))

    with suppress(FieldTableError):
        decode_table(bytes(encoded))


@given(st.binary(max_size=64))
def test_any_bytes_are_an_error_or_a_table(encoded: bytes) -> None:
    with suppress(FieldTableError):
        decode_table(encoded)
