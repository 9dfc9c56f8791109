"""Archives: messages moved out of streams, as Parquet files and a manifest that says which offsets they hold.

A pipeline outside the broker writes archives and the broker reads them, so this package knows neither: no wire, no
vhost, no settings.
"""

from penstock.archive.errors import ArchiveError
from penstock.archive.manifest import ArchivedFile, ArchivedPartition, Live, Manifest

__all__ = ["ArchiveError", "ArchivedFile", "ArchivedPartition", "Live", "Manifest"]
