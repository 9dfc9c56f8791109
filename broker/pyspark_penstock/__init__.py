"""Found by Spark by its name: a module `pyspark_*` with a `DefaultSource` needs no registration."""

from penstock.spark.source import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
