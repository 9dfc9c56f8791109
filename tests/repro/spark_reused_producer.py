"""A `producer` is used again by a query with a fresh checkpoint.

It writes to another stream, or other rows to the same one: its rows must be stored, or the query must fail.
"""

from rig import Broker, penstock, run
from sparkrig import bodies, compared, copying, run_to_the_end, session, verdict


def reused(spark, folder, broker, connection, rows, staged):
    options = {"staged": staged, "producer": f"nightly-{staged}"}
    seen: dict[str, tuple[int, int, str]] = {}
    for sink in (f"first-{staged}", f"second-{staged}"):
        connection.declare_stream(sink)
        failed = run_to_the_end(copying(spark, broker.uri, "source", sink, folder / sink, options), seconds=40)
        if failed and sink.startswith("first"):
            raise RuntimeError(failed)
    seen[f"staged={staged}, another stream"] = (*compared(rows, bodies(connection, sink)), failed)
    source, sink = f"other-{staged}", f"first-{staged}"
    connection.declare_stream(source)
    others = [b"other-%d" % number for number in range(20)]
    connection.stream(source).publish_many(others)
    failed = run_to_the_end(copying(spark, broker.uri, source, sink, folder / source, options), seconds=40)
    seen[f"staged={staged}, the same stream"] = (*compared(rows + others, bodies(connection, sink)), failed)
    return seen


def check():
    rows = [b"%d" % number for number in range(20)]
    seen: dict[str, tuple[int, int, str]] = {}
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            connection.declare_stream("source")
            connection.stream("source").publish_many(rows)
            for staged in ("false", "true"):
                seen |= reused(spark, folder, broker, connection, rows, staged)
    return verdict(seen, len(rows))


run(check)
