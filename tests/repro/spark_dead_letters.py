"""Every bad record must be in the dead-letter stream once.

So it must be with two decodings of a stream in one query, and with two sinks of a pipeline. An empty body, a tombstone,
is no bad record.
"""

import os
import subprocess

from rig import Broker, penstock, run
from sparkrig import bodies, penstock_command, run_to_the_end, session

PIPELINE = """\
name: measures
source: {stream: measures, startingOffsets: earliest, parsed: json, parsedSchema: degrees DOUBLE, deadLetterStream: bad}
sql: SELECT value.degrees AS degrees FROM source
sinks:
  - {format: parquet, path: one}
  - {format: parquet, path: two}
checkpoint: checkpoints
"""


def union(spark, folder, broker, connection):
    """Each of two decodings cannot decode one of the two records."""
    for name in ("events", "dead", "sink"):
        connection.declare_stream(name)
    connection.stream("events").publish_many([b'{"a": "x", "b": 1}', b'{"a": 1, "b": "x"}'])

    def decoded(field):
        options = {"stream": "events", "startingOffsets": "earliest", "parsed": "json", "deadLetterStream": "dead"}
        rows = spark.readStream.format("penstock").options(uri=broker.uri, parsedSchema=f"{field} INT", **options)
        return rows.load().selectExpr("key", f"CAST(value.{field} AS STRING) AS body")

    writer = decoded("a").union(decoded("b")).writeStream.format("penstock")
    writer = writer.options(uri=broker.uri, stream="sink", checkpointLocation=str(folder / "union"))
    if failed := run_to_the_end(writer.trigger(availableNow=True), seconds=50):
        raise RuntimeError(failed)
    return bodies(connection, "dead"), bodies(connection, "sink")


def tombstone(spark, broker, connection):
    connection.declare_stream("latest-prices")
    connection.declare_stream("dead-prices")
    stream = connection.stream("latest-prices")
    stream.publish(b'{"price": 3}', key=b"hat")
    stream.publish(b"", key=b"hat")
    options = {"stream": "latest-prices", "parsed": "json", "parsedSchema": "price INT"}
    options["deadLetterStream"] = "dead-prices"
    rows = spark.read.format("penstock").options(uri=broker.uri, **options).load().collect()
    reasons = [dict(message.headers) for message in connection.stream("dead-prices").read("first", until="next")]
    return len(rows), reasons


def pipeline(folder, broker, connection):
    connection.declare_stream("measures")
    connection.declare_stream("bad")
    connection.stream("measures").publish_many([b'{"degrees": 20.5}', b"not JSON"])
    document = folder / "measures.yaml"
    document.write_text(PIPELINE)
    environment = {**os.environ, "PENSTOCK_URI": broker.uri}
    environment.pop("PYSPARK_PYTHON", None)
    command = [penstock_command(), "pipeline", "run", str(document)]
    subprocess.run(command, env=environment, check=True, timeout=200, stdout=subprocess.DEVNULL)
    return bodies(connection, "bad")


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            dead, good = union(spark, folder, broker, connection)
            read, reasons = tombstone(spark, broker, connection)
            twice = pipeline(folder, broker, connection)
    is_faulty = len(dead) != 2 or len(twice) != 1 or bool(reasons)
    return is_faulty, (
        f"union of two decodings: {len(dead)} of 2 bad records in the dead-letter stream and {len(good)} good ones in "
        f"the sink; pipeline with two sinks: 1 bad record is there {len(twice)} times; tombstone: {read} of 2 rows "
        f"read, dead letters: {reasons}"
    )


run(check)
