"""The last files of `offsets` and `commits` are deleted, as one repairs a damaged checkpoint.

The batches come again with other rows under the same numbers. Every row must reach the sink, or the query must fail.
"""

from rig import Broker, penstock, run
from sparkrig import bodies, compared, copying, forget_batches, run_to_the_end, session, verdict


def lost(spark, folder, broker, connection, staged):
    source, sink, checkpoint = f"source-{staged}", f"sink-{staged}", folder / f"checkpoint-{staged}"
    connection.declare_stream(source)
    connection.declare_stream(sink)
    failed = ""
    for batch in range(4):
        if batch == 3:
            forget_batches(checkpoint, 1, 2)
        connection.stream(source).publish_many([b"%d" % number for number in range(batch * 10, batch * 10 + 10)])
        failed = run_to_the_end(copying(spark, broker.uri, source, sink, checkpoint, {"staged": staged}), seconds=40)
        if failed and batch < 3:
            raise RuntimeError(failed)
    return (*compared(bodies(connection, source), bodies(connection, sink)), failed)


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            seen = {f"staged={staged}": lost(spark, folder, broker, connection, staged) for staged in ("false", "true")}
    return verdict(seen, 40)


run(check)
