"""Rows are staged over Arrow Flight in one call, once every two seconds, with a token that ends after five."""

import threading
import time

from issuer import EVERYTHING, Issuer
from rig import Broker, run
from stubs import GUEST, Stubs

from penstock.v1 import staging_pb2 as staging
from penstock.v1 import streams_pb2 as streams

TOKEN_SECONDS, SECONDS = 5.0, 72.0
_kept: list[object] = []  # what is let go of while the call is open complains


def check():
    import json

    import pyarrow
    from pyarrow import flight

    issuer = Issuer()
    with Broker(env=issuer.settings()) as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.DeclareStream(streams.DeclareStreamRequest(name="flow"))
        token = issuer.token(TOKEN_SECONDS, EVERYTHING)
        ends = time.monotonic() + TOKEN_SECONDS
        client = flight.FlightClient(f"grpc://127.0.0.1:{broker.port}")
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=85)
        descriptor = flight.FlightDescriptor.for_command(json.dumps({"stream": "flow", "stage": "s", "batch": 1}))
        rows = pyarrow.record_batch({"body": pyarrow.array([b"x"], pyarrow.binary())})
        writer, reader = client.do_put(descriptor, rows.schema, options)
        _kept.append((client, writer))
        confirmed, end = 0, ""
        accepted_at = 0.0

        def read():
            nonlocal confirmed, accepted_at, end
            try:
                while reader.read() is not None:
                    confirmed, accepted_at = confirmed + 1, time.monotonic()
            except Exception as error:  # noqa: BLE001  (any error ends the call: the verdict is about the time)
                end = type(error).__name__

        threading.Thread(target=read, daemon=True).start()
        try:
            while not end and time.monotonic() < ends - TOKEN_SECONDS + SECONDS:
                writer.write_batch(rows)
                time.sleep(2)
        except Exception as error:  # noqa: BLE001  (the same)
            end = end or type(error).__name__
        stages = root.ListStages(staging.ListStagesRequest()).stages
        stored = sum(stage.row_count for stage in stages)
    if not confirmed:
        raise RuntimeError(f"no rows were taken: {end}")
    after = accepted_at - ends
    how = f"ended with {end}" if end else "still open"
    sentence = f"the last of {confirmed} batches was taken {after:.0f} s after the token's end ({stored} rows staged)"
    return after > 10, f"{sentence}; the call is {how}"


run(check)
