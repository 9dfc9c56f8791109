"""Files beside the logs: the data directory and its lock, users, vhosts, definitions.

The package keeps them whole through every interruption and does not know their meaning to a client.
"""

from penstock.model.errors import StorageError
from penstock.storage.amqp_frames import Bound, Change, Declared, ExchangeDeleted, QueueDeleted, Unbound
from penstock.storage.archive_reader import StoredArchive, find_stored
from penstock.storage.backup import MetadataCopy, UsersCopy, VhostCopy, copy_users, restore_backup, write_backup
from penstock.storage.backup_archive import BLOCK, is_request_id
from penstock.storage.backup_stream import BackupStream, open_backup_stream
from penstock.storage.cluster_backup import restored_cluster
from penstock.storage.definitions_amqp import DefinitionsCopy, DefinitionsFile
from penstock.storage.definitions_fold import Fold
from penstock.storage.directory import DataDirectory, LastRun, directory_name
from penstock.storage.filled import holds_data
from penstock.storage.records_json import (
    PermissionRecord,
    TopicRecord,
    UserRecord,
    read_users,
    read_vhosts,
    write_users,
    write_vhosts,
)
from penstock.storage.unpacking import is_archive, restore_archive

__all__ = [
    "BLOCK",
    "BackupStream",
    "Bound",
    "Change",
    "DataDirectory",
    "Declared",
    "DefinitionsCopy",
    "DefinitionsFile",
    "ExchangeDeleted",
    "Fold",
    "LastRun",
    "MetadataCopy",
    "PermissionRecord",
    "QueueDeleted",
    "StorageError",
    "StoredArchive",
    "TopicRecord",
    "Unbound",
    "UserRecord",
    "UsersCopy",
    "VhostCopy",
    "copy_users",
    "directory_name",
    "find_stored",
    "holds_data",
    "is_archive",
    "is_request_id",
    "open_backup_stream",
    "read_users",
    "read_vhosts",
    "restore_archive",
    "restore_backup",
    "restored_cluster",
    "write_backup",
    "write_users",
    "write_vhosts",
]
