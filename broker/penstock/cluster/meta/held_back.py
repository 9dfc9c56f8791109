"""Commands that the leader of the metadata holds back while a broker of the cluster does not know their changes.

A broker stops at a record that it cannot read. So a command whose changes came with a later version of the protocol is
refused until every broker has said in its greeting that it knows that version.
"""

from collections.abc import Mapping
from typing import Final

from penstock.cluster.meta.commands import MetaCommand
from penstock.model.errors import PreconditionFailedError, Thing

NEEDED: Final[Mapping[type[MetaCommand], int]] = {}
"""The version of the protocol that came with a command's changes, for those that came after the first one."""


def check_known(command: MetaCommand, used: int, needed: Mapping[type[MetaCommand], int] | None = None) -> None:
    """Raise PreconditionFailedError for a command that needs a newer version than the cluster uses."""
    version = (NEEDED if needed is None else needed).get(type(command), 1)
    if version > used:
        rule = f"needs version {version} of the protocol between brokers, and not all brokers are known to have it"
        way_out = "upgrade and start all brokers of the cluster"
        raise PreconditionFailedError(Thing("command", type(command).__name__), rule, way_out)
