"""JSON bodies become the same rows in the native module and in Python, and a bad one costs its own row."""

import base64
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import json_bodies
from penstock.spark.bodies import DecodeBodies
from penstock.spark.json_native import native_decoder
from penstock.spark.json_plain import plain_decoder

KIND = pa.struct([("id", pa.int64()), ("name", pa.string()), ("at", pa.timestamp("us", "UTC"))])
MIDNIGHT = datetime.fromisoformat("2026-01-31")
GOOD = b'{"id": 1, "name": "a"}'
both = pytest.mark.parametrize("decoder", [native_decoder, plain_decoder])
Make = Callable[[pa.StructType], DecodeBodies]


def one(decoder: Make, kind: pa.DataType, text: str) -> Any:
    """Return the value of one field that is written like this; fail for a bad body."""
    values, reasons = decoder(pa.struct([("a", kind)]))(pa.array([f'{{"a": {text}}}'.encode()]))
    assert reasons == {}
    return values.to_pylist()[0]["a"]


@both
@pytest.mark.parametrize("digits", ["1" * 4_300, "-" + "1" * 4_300 + "E-4299", "0." + "1" * 5_000, "1e" + "9" * 5_000])
def test_a_long_number_keeps_its_digits(decoder: Make, digits: str) -> None:
    assert one(decoder, pa.string(), digits) == digits


@both
def test_fields_are_read_by_name_missing_ones_are_null_and_others_are_left_out(decoder: Make) -> None:
    bodies = [b'{"name": "\xc3\xa9", "more": [1]}', b'{\n  "id": 7,\r\n  "at": "2026-01-31T12:00:00Z"\n}']

    values, reasons = decoder(KIND)(pa.array(bodies))

    assert reasons == {}
    assert values.to_pylist() == [
        {"id": None, "name": "é", "at": None},
        {"id": 7, "name": None, "at": datetime(2026, 1, 31, 12, tzinfo=UTC)},
    ]


@both
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b" ", "not a JSON object"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"\xff\xfe", "not UTF-8"),
        (b'{"other": "\xff"}', "not UTF-8"),
        (b'{"other": "\\ud800"}', "not JSON"),
        (b'{"id": 1} {"id": 2}', "not JSON"),
        (b'{"id": "one"}', "field 'id': this text does not fit"),
        (b'{"id": 1, "id": []}', "field 'id': an array does not fit"),
        (b'{"id": [], "id": 1}', "field 'id': an array does not fit"),
        (b'{"at": true}', "field 'at': a boolean does not fit"),
        (b'{"id": 1,}', "not JSON"),
        (b"{'id': 1}", "not JSON"),
        (b'{"id": 01}', "not JSON"),
        (b'{"id": x}', "not JSON"),
        (b'{"other": ' + b"[" * 300 + b"]" * 300 + b"}", "not JSON"),
        (b'{"name": ' + b"[" * 300 + b"]" * 300 + b"}", "not JSON"),
        (b'{"id": ' + b"[" * 100_000, "not JSON"),
        (b'{"name": ' + b"1" * 4_301 + b"}", "number out of range"),
        (b'{"other": [-' + b"1" * 4_301 + b".5e-4300]}", "number out of range"),
    ],
)
def test_a_bad_body_among_good_ones_is_found_with_its_reason(decoder: Make, body: bytes, reason: str) -> None:
    values, reasons = decoder(KIND)(pa.array([GOOD] * 5 + [body] + [GOOD] * 6))

    assert list(reasons) == [5]
    assert reason in reasons[5]
    assert [row for row, value in enumerate(values.to_pylist()) if value is None] == [5]


@both
def test_an_empty_body_is_null_and_not_bad(decoder: Make) -> None:
    values, reasons = decoder(KIND)(pa.array([b"", GOOD, b""]))

    assert reasons == {}
    assert [value and value["id"] for value in values.to_pylist()] == [None, 1, None]


@both
def test_a_slice_of_bodies_is_decoded_alone(decoder: Make) -> None:
    bodies = pa.array([b'{"id": 1}', b"x", b'{"id": 3}', b'{"id": 4}'])

    values, reasons = decoder(KIND)(bodies.slice(1, 2))

    assert list(reasons) == [0]
    assert values.to_pylist() == [None, {"id": 3, "name": None, "at": None}]


@both
@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (pa.string(), "1.50", "1.50"),
        (pa.string(), "true", "true"),
        (pa.string(), '{"b" : [1, null, "\\u00e9\\n/\\u0001"]}', '{"b":[1,null,"é\\n/\\u0001"]}'),
        (pa.string(), '"\\ud83d\\ude00"', "\U0001f600"),
        (pa.int8(), "-128", -128),
        (pa.float64(), "1e400", float("inf")),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.float64(), '"+INF"', float("inf")),
        (pa.float64(), "7", 7.0),
        (pa.decimal128(5, 2), "1.005", Decimal("1.01")),
        (pa.decimal128(5, 2), '"-99e-1"', Decimal("-9.90")),
        (pa.decimal128(38, 0), "1e37", Decimal(10**37)),
        (pa.binary(), '"YQ=="', b"a"),
        (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
        (
            pa.timestamp("us", "UTC"),
            '"2026-01-31T01:30:00.1234567+02:00"',
            datetime(2026, 1, 30, 23, 30, 0, 123456, UTC),
        ),
        (pa.timestamp("us", "UTC"), '"2026-01-31 12:00"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "-1", datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
        (pa.timestamp("us"), '"2026-01-31"', MIDNIGHT),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (pa.map_(pa.string(), pa.int64()), '{"x": 1, "x": 2, "y": null}', [("x", 1), ("x", 2), ("y", None)]),
        (pa.struct([("b", pa.int64())]), '{"b": 1, "b": 2, "c": 3}', {"b": 2}),
        (pa.list_(pa.struct([("b", pa.int64())])), '[null, {}, {"b": 1}]', [None, {"b": None}, {"b": 1}]),
    ],
)
def test_a_value_is_read_as_its_type(decoder: Make, kind: pa.DataType, text: str, value: object) -> None:
    assert one(decoder, kind, text) == value


@both
@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int8(), "128"),
        (pa.int64(), "1.0"),
        (pa.int64(), "9223372036854775808"),
        (pa.int64(), '"1"'),
        (pa.int64(), "NaN"),
        (pa.bool_(), "1"),
        (pa.float64(), '"1"'),
        (pa.float64(), '"nan"'),
        (pa.decimal128(5, 2), "1000"),
        (pa.decimal128(5, 2), "1e99999999999999999999"),
        (pa.decimal128(5, 2), '"x"'),
        (pa.binary(), '"YQ"'),
        (pa.binary(), '"YR=="'),
        (pa.binary(), '"Y Q=="'),
        (pa.date32(), '"2026-02-30"'),
        (pa.date32(), '"2026-02-03T00:00:00"'),
        (pa.date32(), "20260101"),
        (pa.timestamp("us", "UTC"), '"yesterday"'),
        (pa.timestamp("us", "UTC"), "1.5"),
        (pa.timestamp("us", "UTC"), "9223372036855"),
        (pa.timestamp("us"), '"2026-01-31T12:00:00Z"'),
        (pa.timestamp("us"), "1"),
        (pa.list_(pa.int64()), "{}"),
        (pa.list_(pa.int64()), '[1, "x"]'),
        (pa.map_(pa.string(), pa.int64()), "[]"),
        (pa.struct([("b", pa.int64())]), "[]"),
    ],
)
def test_a_value_that_does_not_fit_makes_its_body_bad(decoder: Make, kind: pa.DataType, text: str) -> None:
    bodies = pa.array([b'{"a": null}', f'{{"a": {text}}}'.encode(), b"{}"])

    values, reasons = decoder(pa.struct([("a", kind)]))(bodies)

    assert list(reasons) == [1]
    assert values.to_pylist() == [{"a": None}, None, {"a": None}]


SCALARS = st.sampled_from(
    [
        *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.string(), pa.binary()),
        *(pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.decimal128(6, 2), pa.decimal128(38, 10)),
    ]
)
FIELD = st.sampled_from("abc")
KINDS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(pa.list_, inner),
        st.builds(lambda value: pa.map_(pa.string(), value), inner),
        st.dictionaries(FIELD, inner, max_size=3).map(lambda fields: pa.struct(list(fields.items()))),
    ),
    max_leaves=6,
)
TIMES = st.datetimes().map(datetime.isoformat)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    # Others are seconds of years that Python has not.
    st.one_of(st.integers(-200, 200), st.integers(-(2**32), 2**32), st.integers(2**62, 2**65), st.just(-(2**63))),
    st.floats(),
    st.text(max_size=4),
    st.dates().map(date.isoformat),
    st.builds(str.__add__, TIMES, st.sampled_from(["", "Z", "+02:00", "-0130", "+05"])),
    st.decimals(allow_nan=False, allow_infinity=False, places=3).map(str),
    st.sampled_from(["NaN", "Infinity", "-INF", "YQ=="]),
    st.binary(max_size=4).map(lambda data: base64.b64encode(data).decode()),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(FIELD, inner, max_size=3)),
    max_leaves=8,
)
OBJECTS = st.dictionaries(FIELD, VALUES, max_size=3).map(lambda value: json.dumps(value).encode())
# Bodies that are cut off or have a wrong byte, too.
BROKEN = st.builds(
    lambda body, at, byte: body[:at] + byte + body[at + 1 :], OBJECTS, st.integers(0, 40), st.binary(max_size=1)
)


@given(st.dictionaries(FIELD, KINDS, max_size=3), st.lists(st.one_of(OBJECTS, BROKEN, st.just(b"")), max_size=8))
def test_both_decoders_have_the_same_rows(fields: dict[str, pa.DataType], bodies: list[bytes]) -> None:
    kind = pa.struct(list(fields.items()))
    array = pa.array(bodies, pa.binary())

    native, native_reasons = native_decoder(kind)(array)
    plain, plain_reasons = plain_decoder(kind)(array)

    assert native.type == kind
    native.validate(full=True)
    assert list(native_reasons) == list(plain_reasons)
    assert str(native.to_pylist()) == str(plain.to_pylist())


@pytest.fixture
def without_native(monkeypatch: pytest.MonkeyPatch) -> None:
    json_bodies.is_native.cache_clear()
    monkeypatch.setitem(sys.modules, "penstock.spark.json_native", None)


def test_without_the_native_module_bodies_are_decoded_in_python_with_one_warning(
    without_native: None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "penstock"):
        for _ in range(2):
            values, _ = json_bodies.json_decoder(KIND)(pa.array([GOOD]))

    json_bodies.is_native.cache_clear()
    assert values.to_pylist() == [{"id": 1, "name": "a", "at": None}]
    assert ["decoded in Python" in record.message for record in caplog.records] == [True]
