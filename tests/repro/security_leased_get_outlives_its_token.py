"""The messages of a lease are read over Arrow Flight with a token that ends after five seconds.

The client reads on only twenty seconds later.
"""

import time

from issuer import EVERYTHING, Issuer
from rig import Broker, run, wire
from stubs import GUEST, Stubs, batch

TOKEN_SECONDS, PAUSE_SECONDS = 5.0, 20.0
COUNT, BODY_BYTES = 120, 1_000_000


def check():
    from pyarrow import flight

    issuer = Issuer()
    with Broker(env=issuer.settings()) as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.declare("q")
        for _ in range(COUNT // 10):
            root.publish(batch("q", *[b"x" * BODY_BYTES] * 10))
        root.ReserveLease(wire.ReserveLeaseRequest(queue="q", owner="o", lease=1))
        token = issuer.token(TOKEN_SECONDS, EVERYTHING)
        client = flight.FlightClient(f"grpc://127.0.0.1:{broker.port}")
        options = flight.FlightCallOptions(headers=[(b"authorization", f"Bearer {token}".encode())], timeout=60)
        reader = client.do_get(flight.Ticket(b'{"queue": "q", "owner": "o", "lease": 1}'), options)
        first = reader.read_chunk().data.num_rows
        time.sleep(PAUSE_SECONDS)
        try:
            rows, end = first + reader.read_all().num_rows, "its end"
        except flight.FlightUnauthenticatedError:
            rows, end = first, "UNAUTHENTICATED"
    late = PAUSE_SECONDS - TOKEN_SECONDS
    return rows == COUNT, f"{late:.0f} s after the token's end a lease of {COUNT} MB is read on to {end} ({rows} rows)"


run(check)
