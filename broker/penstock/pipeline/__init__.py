"""Pipelines: a source, a transformation in SQL or Python, and sinks, declared in YAML and run on Spark.

They run outside the broker, on the Spark connector. A document is read and checked whole before Spark starts.
"""

from penstock.pipeline.document import Pipeline, Sink, Table, read_pipeline
from penstock.pipeline.errors import PipelineError
from penstock.pipeline.project import Project, is_project, read_project, write_project
from penstock.pipeline.template import write_template, write_template_project

__all__ = [
    "Pipeline",
    "PipelineError",
    "Project",
    "Sink",
    "Table",
    "is_project",
    "read_pipeline",
    "read_project",
    "write_project",
    "write_template",
    "write_template_project",
]
