"""What is wrong with an archive, in a sentence that names the file, the rule and the way out."""

__all__ = ["ArchiveError"]


class ArchiveError(Exception):
    """An archive that cannot be read or must not be written."""
