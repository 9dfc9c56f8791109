"""`format("penstock")`: makes Spark's readers and writers from options.

Options are parsed, and streams to publish to are looked up, where Spark can still show an error: before anything runs.
"""

from pyspark.errors import PySparkTypeError
from pyspark.sql.datasource import DataSource
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from penstock.spark.columns import ddl_of, parsed_name
from penstock.spark.errors import OptionError, SchemaError
from penstock.spark.json_schema import check_json_kind
from penstock.spark.options import ReadOptions, parse_read_options, parse_write_options
from penstock.spark.own_schemas import check_shown
from penstock.spark.queue_options import is_queue, parse_queue_options
from penstock.spark.queues import QueueBatchReader, QueueMicroBatchReader
from penstock.spark.reading import BatchReader
from penstock.spark.streaming import MicroBatchReader
from penstock.spark.targets import check_dead_letters, check_target
from penstock.spark.writing import BatchWriter, MicroBatchWriter

__all__ = ["PenstockSource"]


class PenstockSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        if is_queue(self.options):
            return ddl_of(parse_queue_options(self.options).rows)
        return ddl_of(parse_read_options(self.options))

    def reader(self, schema: StructType) -> BatchReader | QueueBatchReader:
        if is_queue(self.options):
            of_queue = parse_queue_options(self.options)
            check_read(of_queue.rows, schema)
            return QueueBatchReader(of_queue, schema)
        options = parse_read_options(self.options)
        reader = BatchReader(options, schema)
        check_read(options, schema)
        return reader

    def streamReader(self, schema: StructType) -> MicroBatchReader | QueueMicroBatchReader:  # noqa: N802 (by Spark)
        if is_queue(self.options):
            of_queue = parse_queue_options(self.options)
            check_read(of_queue.rows, schema)
            return QueueMicroBatchReader(of_queue, schema)
        options = parse_read_options(self.options)
        reader = MicroBatchReader(options, schema)
        check_read(options, schema)
        return reader

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        refuse_overwriting(overwrite)
        options = parse_write_options(self.options)
        writer = BatchWriter(options, schema)
        check_target(options)
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:  # noqa: N802
        refuse_overwriting(overwrite)
        options = parse_write_options(self.options)
        writer = MicroBatchWriter(options, schema)
        check_target(options)
        return writer


def check_read(options: ReadOptions, schema: StructType) -> None:
    """Raise the connector's errors for what would fail in each task."""
    try:
        shown = to_arrow_schema(schema, timezone="UTC")
    except PySparkTypeError as error:
        raise SchemaError(f"the schema of this read has a type that cannot be read: {error}") from None
    check_shown(shown, options)
    if options.decoding.format == "json":
        check_json_kind(shown.field(parsed_name(options)).type, options.decoding)
    check_dead_letters(options)


def refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise OptionError("messages cannot be overwritten; use mode('append') or outputMode('append')")
