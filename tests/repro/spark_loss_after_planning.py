"""Rows that retention takes between the planning of a batch and its reading.

They must stop it while `failOnDataLoss` is true, as they do when they are gone before.
"""

from typing import Any

from rig import Broker, penstock, run
from sparkrig import require_spark


def check():
    require_spark()
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            return outcome(broker.uri, connection)


def outcome(uri, connection):
    from pyspark.sql.types import StructType

    from penstock.spark.errors import SparkConnectorError
    from penstock.spark.source import PenstockSource

    connection.declare_stream("events", dedicated=True)
    stream = connection.stream("events")
    for _ in range(20):
        stream.publish_many([bytes(250_000) for _ in range(20)])
    wanted = stream.info().message_count
    options = {"uri": uri, "stream": "events", "failOnDataLoss": "true", "columns": "offset"}
    schema = StructType().add("offset", "long")
    readers: dict[str, Any] = {
        "batch": PenstockSource(options).reader(schema),
        "query": PenstockSource({**options, "startingOffsets": "earliest"}).streamReader(schema),
    }
    planned = {"batch": readers["batch"].partitions()}
    start = readers["query"].initialOffset()
    end = readers["query"].latestOffset(start, readers["query"].getDefaultReadLimit())
    planned["query"] = readers["query"].partitions(start, end)
    first = stream.trim(10**9)
    faulty, told = False, []
    for kind, reader in readers.items():
        try:
            got = sum(batch.num_rows for each in planned[kind] for batch in reader.read(each))
            told.append(f"{kind}: {got} of {wanted} rows that were planned, and no error")
            faulty |= got < wanted
        except SparkConnectorError as error:
            told.append(f"{kind}: {type(error).__name__}: {error}")
    late = PenstockSource({**options, "startingOffsets": '{"events": 1}'}).reader(schema)
    try:
        late.partitions()
        told.append("planned afterwards: no error either")
    except SparkConnectorError as error:
        told.append(f"planned afterwards: {type(error).__name__}")
    return faulty, f"trimmed to offset {first}; " + "; ".join(told)


run(check)
