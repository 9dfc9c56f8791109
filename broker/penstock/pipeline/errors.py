"""Errors of pipelines: one sentence for the author of the document or the user who started the run."""

__all__ = ["PipelineError"]


class PipelineError(ValueError):
    """A document that cannot be run, or a run that failed."""
