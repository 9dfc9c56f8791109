"""All rows of a partition were read and then trimmed, and numbers jumped after power was lost.

Nothing that was wanted is gone, so no DataLossError may be raised.
"""

from rig import Broker, penstock, run
from sparkrig import lose_power, require_spark


def check():
    require_spark()
    with Broker() as broker:
        broker.start()
        return outcome(broker)


def outcome(broker):
    from pyspark.sql.types import StructType

    from penstock.spark.errors import SparkConnectorError
    from penstock.spark.source import PenstockSource

    options = {"uri": broker.uri, "stream": "events", "startingOffsets": "earliest", "pollTimeoutMs": "0"}
    schema = StructType().add("offset", "long")
    with penstock.connect(broker.uri, native=False) as connection:
        connection.declare_stream("events", dedicated=True)
        stream = connection.stream("events")
        for _ in range(4):
            stream.publish_many([bytes(250_000) for _ in range(20)])
        reader = PenstockSource(options).streamReader(schema)
        start = reader.initialOffset()
        read_to = reader.latestOffset(start, reader.getDefaultReadLimit())
        reader.stop()
    lose_power(broker)
    broker.start()
    with penstock.connect(broker.uri, native=False) as connection:
        stream = connection.stream("events")
        # Enough to seal the segments with what was read, which retention then takes.
        for _ in range(8):
            stream.publish_many([bytes(250_000) for _ in range(20)])
        offsets = [message.offset for message in stream.read("first", until="next")]
        jumped = next(offset for offset in offsets if offset > 2**31)
        first = stream.trim(jumped)
        there = [message.offset for message in stream.read("first", until="next")]
    reader = PenstockSource(options).streamReader(schema)
    what = f"read up to {read_to}, first new row {jumped}, trimmed to {first}, first there {there[0]}"
    try:
        end = reader.latestOffset(read_to, reader.getDefaultReadLimit())
        partitions = reader.partitions(read_to, end)
        return False, f"{what}: planned {len(partitions)} tasks, no error"
    except SparkConnectorError as error:
        return there[0] == jumped, f"{what}: {type(error).__name__}: {error}"


run(check)
