"""`format("penstock")`: what Spark asks for a reader or a writer, from the options that it was given.

Options are parsed where Spark can still show what is wrong with them, before anything runs.
"""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from penstock.spark.columns import ddl_of
from penstock.spark.errors import OptionError
from penstock.spark.options import parse_read_options, parse_write_options
from penstock.spark.reading import BatchReader
from penstock.spark.streaming import MicroBatchReader
from penstock.spark.writing import BatchWriter, MicroBatchWriter

__all__ = ["PenstockSource"]


class PenstockSource(DataSource):  # type: ignore[misc]
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> str:
        return ddl_of(parse_read_options(self.options))

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(parse_read_options(self.options), schema)

    def streamReader(self, schema: StructType) -> MicroBatchReader:  # noqa: N802 (named by Spark)
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
