"""A named producer and a stage must be able to write to the partitions of a dedicated stream.

A stream of three partitions that was declared `dedicated` takes rows from the client; Spark must be able to write
them too, plain and staged, each once.
"""

from collections import Counter

from rig import Broker, penstock, run
from sparkrig import bodies, copying, reason, run_to_the_end, session


def compared(expected, found):
    """Return how many of the expected bodies are missing, and how many are there too often."""
    wanted, there = Counter(expected), Counter(found)
    return sum((wanted - there).values()), sum((there - wanted).values())


def by_client(connection, rows):
    connection.declare_stream("by-client", partitions=3, dedicated=True)
    with connection.stream("by-client").publisher("an-import") as publisher:
        try:
            for row in rows[:30]:
                publisher.publish(row, key=row)
        except penstock.PenstockError as error:
            return f"a named publisher of the client: {reason(error)}", True
    missing, doubled = compared(rows[:30], bodies(connection, "by-client"))
    return f"a named publisher of the client: {30 - missing} of 30 rows, {doubled} twice", bool(missing or doubled)


def written(spark, uri, connection, rows, staged):
    from pyspark.errors import PySparkException

    sink = f"sink-{staged}"
    connection.declare_stream(sink, partitions=3, dedicated=True)
    frame = spark.range(len(rows)).selectExpr("CAST(id AS STRING) AS body", "CAST(id AS STRING) AS key")
    failed = ""
    try:
        writer = frame.coalesce(1).write.format("penstock").mode("append")
        writer.options(uri=uri, stream=sink, staged=staged).save()
    except PySparkException as error:
        failed = reason(error)
    missing, doubled = compared(rows, bodies(connection, sink))
    text = f"staged={staged}: {len(rows) - missing} of {len(rows)} rows stored, {doubled} twice, " + (
        f"and the write failed: {failed}" if failed else "and the write ended well"
    )
    return text, bool(failed or missing or doubled)


def query(spark, folder, uri, connection, rows):
    connection.declare_stream("source")
    connection.declare_stream("sink-query", partitions=3, dedicated=True)
    for row in rows[:300]:
        connection.stream("source").publish(row, key=row)
    for attempt in (1, 2):
        writer = copying(spark, uri, "source", "sink-query", folder / "query", {"staged": "true"})
        failed = run_to_the_end(writer, seconds=50)
        missing, doubled = compared(rows[:300], bodies(connection, "sink-query"))
        stages = [(each.last_batch, each.is_copying, each.row_count) for each in connection.admin.list_stages()]
        text = (
            f"staged query, start {attempt}: {300 - missing} of 300 rows, {doubled} twice, "
            f"{failed or 'ended well'}, stage (last batch, is copying, rows): {stages}"
        )
        yield text, bool(failed or missing or doubled)


def check():
    rows = [b"%d" % number for number in range(3_000)]
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        with penstock.connect(broker.uri, native=False) as connection:
            told = [
                by_client(connection, rows),
                written(spark, broker.uri, connection, rows, "false"),
                written(spark, broker.uri, connection, rows, "true"),
                *query(spark, folder, broker.uri, connection, rows),
            ]
    return any(is_faulty for _, is_faulty in told), "; ".join(text for text, _ in told)


run(check)
