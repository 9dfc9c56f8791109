"""Archives: what was moved out of streams, as Parquet files and a manifest that says which offsets they hold.

Written by a pipeline outside the broker and read inside it, so this room knows neither: no wire, no vhost, no settings.
"""

from penstock.archive.errors import ArchiveError
from penstock.archive.manifest import ArchivedFile, ArchivedPartition, Live, Manifest

__all__ = ["ArchiveError", "ArchivedFile", "ArchivedPartition", "Live", "Manifest"]
