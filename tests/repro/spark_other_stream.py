"""A checkpoint is used with another stream, or with one that was deleted and declared again.

The query must say so rather than go on where the old stream was.
"""

from rig import Broker, penstock, run
from sparkrig import bodies, copying, run_to_the_end, session


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            return outcome(broker.uri, spark, folder, connection)


def outcome(uri, spark, folder, connection):
    for name in ("orders", "payments", "sink", "events", "copy"):
        connection.declare_stream(name)
    connection.stream("orders").publish_many([b"order-%d" % number for number in range(20)])
    connection.stream("payments").publish_many([b"payment-%d" % number for number in range(30)])
    other = folder / "other"
    if failed := run_to_the_end(copying(spark, uri, "orders", "sink", other), seconds=40):
        raise RuntimeError(failed)
    renamed = run_to_the_end(copying(spark, uri, "payments", "sink", other), seconds=40)
    payments = sum(body.startswith(b"payment") for body in bodies(connection, "sink"))

    again = folder / "again"
    connection.stream("events").publish_many([b"old-%d" % number for number in range(20)])
    if failed := run_to_the_end(copying(spark, uri, "events", "copy", again), seconds=40):
        raise RuntimeError(failed)
    connection.delete_stream("events")
    connection.declare_stream("events")
    connection.stream("events").publish_many([b"new-%d" % number for number in range(30)])
    redeclared = run_to_the_end(copying(spark, uri, "events", "copy", again), seconds=40)
    new = sum(body.startswith(b"new") for body in bodies(connection, "copy"))
    return not renamed or (new < 30 and not redeclared), (
        f"checkpoint of 'orders' with 'payments': {renamed or f'accepted, {payments} of 30 rows copied'}; stream "
        f"deleted, declared again and given 30 rows: {redeclared or f'accepted, {new} of 30 rows copied'}"
    )


run(check)
