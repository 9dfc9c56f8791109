"""Export and import of definitions, of the whole broker or of one virtual host."""

from dataclasses import dataclass
from typing import Final

from penstock.metadata import check_shard_count
from penstock.model.names import vhost_name
from penstock.services.events import Events, LimitsChanged, PermissionsChanged, TopologyChanged
from penstock.services.ports import Node
from penstock.services.principal import Principal
from penstock.services.verbs import changing
from penstock.vhost import definitions
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.definitions_json import DEFINITIONS
from penstock.vhost.ports import DefinitionsUsers

_RIGHTS: Final = ("users", "permissions", "topic_permissions")
_TARGETS: Final = ("exchanges", "queues")
"""Streams are among the queues. A publisher may have learned that an exchange or a stream is not there."""


@dataclass(frozen=True, slots=True)
class Imported:
    """How many of each kind were added, and what was skipped and why."""

    added: dict[str, int]
    skipped: list[str]


class DefinitionVerbs:
    def __init__(self, vhosts: AllVhosts, users: DefinitionsUsers, node: Node, events: Events) -> None:
        self._vhosts = vhosts
        self._users = users
        self._node = node
        self._events = events

    @changing("ExportDefinitions", "vhost")
    async def export_definitions(self, principal: Principal, vhost: str | None = None) -> bytes:
        """Return the JSON of one virtual host, or of everything with users and permissions."""
        version, rights = self._node.state().version, principal.in_broker()
        if vhost is None:
            return await definitions.export_definitions(self._vhosts, self._users, rights, version)
        return await definitions.export_vhost(self._vhosts.get(vhost_name(vhost)), rights, version)

    @changing("ImportDefinitions", "vhost")
    async def import_definitions(
        self, principal: Principal, text: bytes, vhost: str | None = None, *, skips: bool = False, shard_count: int = 1
    ) -> Imported:
        """Add the items of a document. An unsupported one refuses all of it, or with `skips` is left out.

        A new virtual host for which the document has no number of shards gets `shard_count`.
        """
        skipped: list[str] = []
        into = None if vhost is None else vhost_name(vhost)
        principal.require_administrator(DEFINITIONS)
        check_shard_count(DEFINITIONS, shard_count)
        wanted = await definitions.check_import(
            self._vhosts, self._users, principal.in_broker(), text, into, skipped if skips else None
        )
        with self._events.commit() as changed:
            # What stops half-way has changed something too.
            changed.update((TopologyChanged(into), PermissionsChanged(), LimitsChanged()))
            added = await definitions.add_all(self._vhosts, self._users, wanted, shard_count)
            if not any(added[kind] for kind in _RIGHTS):
                changed.discard(PermissionsChanged())
            if not any(added[kind] for kind in _TARGETS):
                changed.discard(TopologyChanged(into))
        return Imported(added, skipped)
