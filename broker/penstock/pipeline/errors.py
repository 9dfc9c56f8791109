"""What this room refuses: one sentence for whoever wrote the document or started the run."""

__all__ = ["PipelineError"]


class PipelineError(ValueError):
    """A document that cannot be run, or a run that failed."""
