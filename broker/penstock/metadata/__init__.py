"""The pure machine of one vhost's topology: commands in, entries for the file and changes for the engine out."""

from penstock.metadata.decide import decide
from penstock.metadata.limit_rules import check_shard_count
from penstock.metadata.pending import PendingTopology
from penstock.metadata.queues import check_default_queue_type
from penstock.metadata.removal import take_back
from penstock.metadata.replicated import all_entries_of, is_stored, replicated
from penstock.metadata.restore import apply_entry, changes_of, entries_of, restore, trial_of
from penstock.metadata.topology import PREDECLARED, PREDECLARED_NAMES, VhostTopology

__all__ = [
    "PREDECLARED",
    "PREDECLARED_NAMES",
    "PendingTopology",
    "VhostTopology",
    "all_entries_of",
    "apply_entry",
    "changes_of",
    "check_default_queue_type",
    "check_shard_count",
    "decide",
    "entries_of",
    "is_stored",
    "replicated",
    "restore",
    "take_back",
    "trial_of",
]
