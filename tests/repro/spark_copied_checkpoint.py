"""A query's checkpoint is copied for a second query that goes on into another stream of the virtual host.

What comes then must reach both streams, or the second query must fail.
"""

import shutil

from rig import Broker, penstock, run
from sparkrig import bodies, compared, copying, run_to_the_end, session, verdict


def copied(spark, folder, broker, connection, staged):
    source, blue, green = (f"{name}-{staged}" for name in ("source", "blue", "green"))
    for name in (source, blue, green):
        connection.declare_stream(name)
    first, second = folder / blue, folder / green

    def copy(sink, checkpoint):
        return run_to_the_end(copying(spark, broker.uri, source, sink, checkpoint, {"staged": staged}), seconds=40)

    connection.stream(source).publish_many([b"old-%d" % number for number in range(10)])
    if failed := copy(blue, first):
        raise RuntimeError(failed)
    shutil.copytree(first, second)
    new = [b"new-%d" % number for number in range(20)]
    connection.stream(source).publish_many(new)
    if failed := copy(blue, first):
        raise RuntimeError(failed)
    failed = copy(green, second)
    there = [body for body in bodies(connection, green) if body.startswith(b"new")]
    return (*compared(new, there), failed)


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            seen = {
                f"staged={staged}, the second stream": copied(spark, folder, broker, connection, staged)
                for staged in ("false", "true")
            }
    return verdict(seen, 20)


run(check)
