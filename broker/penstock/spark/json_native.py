"""JSON bodies to Arrow arrays in the native module, without a Python object per row.

Importing it fails where the native module is missing, as on executors that have the client alone.
"""

import pyarrow as pa

from penstock._core import JsonDecoder
from penstock.spark.bodies import DecodeBodies

__all__ = ["native_decoder"]

OFFSET_BYTES = 4


def native_decoder(kind: pa.StructType) -> DecodeBodies:
    """Return the decoder for a struct of the bodies' fields."""
    decoder = JsonDecoder(pa.schema(list(kind)).serialize().to_pybytes())

    def decoded(bodies: pa.Array) -> tuple[pa.Array, dict[int, str]]:
        _, offsets, data = bodies.buffers()
        ends = offsets.slice(bodies.offset * OFFSET_BYTES, (len(bodies) + 1) * OFFSET_BYTES).to_pybytes()
        first, last = (int.from_bytes(end, "little") for end in (ends[:OFFSET_BYTES], ends[-OFFSET_BYTES:]))
        text = b"" if data is None else data.slice(first, last - first).to_pybytes()
        found = decoder.decode(ends, text)
        with pa.ipc.open_stream(found.batch) as reader:
            return reader.read_next_batch().column(0), {bad.row: bad.reason for bad in found.bad}

    return decoded
