"""Pipelines: a source, a transformation in SQL or Python, sinks; declared in YAML and run on Spark.

Outside the broker, like the connector that it is made with. A document is read and checked whole before Spark starts.
"""

from penstock.pipeline.document import Pipeline, PipelineError, Sink, Table, read_pipeline
from penstock.pipeline.template import write_template

__all__ = ["Pipeline", "PipelineError", "Sink", "Table", "read_pipeline", "write_template"]
