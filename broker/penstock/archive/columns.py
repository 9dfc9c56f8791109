"""The columns of an archive's files: exactly those of Arrow Flight.

They are a contract in both directions: a file with other columns was not written by Penstock and is not read.
"""

import pyarrow as pa

__all__ = ["SCHEMA"]

TIME = pa.timestamp("us", tz="UTC")
TEXT = pa.string()
PROPERTIES = pa.struct(
    [
        ("content_type", TEXT),
        ("content_encoding", TEXT),
        ("delivery_mode", pa.int32()),
        ("priority", pa.int32()),
        ("correlation_id", TEXT),
        ("reply_to", TEXT),
        ("expiration", TEXT),
        ("message_id", TEXT),
        ("timestamp", TIME),
        ("type", TEXT),
        ("user_id", TEXT),
        ("app_id", TEXT),
    ]
)
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", TEXT, nullable=False), ("value", pa.binary())]), nullable=False)
)
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", TIME, nullable=False),
        pa.field("key", pa.binary()),
        pa.field("exchange", TEXT, nullable=False),
        pa.field("routing_key", TEXT, nullable=False),
        pa.field("body", pa.binary(), nullable=False),
        pa.field("properties", PROPERTIES),
        pa.field("headers", HEADERS, nullable=False),
        pa.field("partition", TEXT, nullable=False),
    ]
)
