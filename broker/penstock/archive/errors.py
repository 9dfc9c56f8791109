"""Errors of archives: a sentence that names the file, the rule and the remedy."""

__all__ = ["ArchiveError"]


class ArchiveError(Exception):
    """An archive that cannot be read or must not be written."""
