"""`format("penstock")`: makes Spark's readers and writers from options.

Options are parsed where Spark can still show an error, before anything runs.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.columns import ddl_of
from penstock.spark.errors import OptionError
from penstock.spark.options import parse_read_options, parse_write_options
from penstock.spark.queue_options import is_queue, parse_queue_options
from penstock.spark.queues import QueueBatchReader, QueueMicroBatchReader
from penstock.spark.reading import BatchReader
from penstock.spark.streaming import MicroBatchReader
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
            return QueueBatchReader(parse_queue_options(self.options), schema)
        return BatchReader(parse_read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> MicroBatchReader | QueueMicroBatchReader:  # noqa: N802 (by Spark)
        if is_queue(self.options):
            return QueueMicroBatchReader(parse_queue_options(self.options), schema)
        return MicroBatchReader(parse_read_options(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        refuse_overwriting(overwrite)
        return BatchWriter(parse_write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> MicroBatchWriter:  # noqa: N802
        refuse_overwriting(overwrite)
        return MicroBatchWriter(parse_write_options(self.options), schema)


def refuse_overwriting(overwrite: bool) -> None:
    if overwrite:
        raise OptionError("messages cannot be overwritten; use mode('append') or outputMode('append')")
