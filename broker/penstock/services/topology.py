"""Exchanges, queues and bindings. A declare of a queue and a bind emit no event: no open stream has to ask again."""

from penstock.kit.logging import logger
from penstock.kit.settings import PAGE_SIZE_MAX
from penstock.metadata.binding_index import BindingPlace
from penstock.metadata.commands import DeclareExchange, DeclareQueue
from penstock.model.errors import FaultError, RefusedError
from penstock.model.names import QueueId, QueueName, VhostName, exchange_name, existing_queue_name, vhost_name
from penstock.model.records import Binding, Exchange
from penstock.services.events import Events, TopologyChanged
from penstock.services.principal import Principal
from penstock.services.sessions import SessionVerbs
from penstock.services.verbs import changing, reading, repeated
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.vhost import QueueStatus

_log = logger("topology")


class TopologyVerbs:
    def __init__(self, vhosts: AllVhosts, sessions: SessionVerbs, events: Events) -> None:
        self._vhosts = vhosts
        self._sessions = sessions
        self._events = events

    # ------------------------------------------------------------ exchanges

    @reading
    async def list_exchanges(
        self, principal: Principal, vhost: str, *, after: str | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[Exchange]:
        """Return a page in the order of names. The default exchange, whose name is empty, comes first."""
        found = self._vhosts.get(vhost_name(vhost))
        return await found.list_exchanges(principal.in_vhost(found.name), after=after, limit=limit)

    @repeated
    async def declare_exchange(self, principal: Principal, vhost: str, wanted: DeclareExchange) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        declared = await found.declare_exchange(principal.in_vhost(found.name), wanted)
        if declared.is_new:
            self._events.emit(TopologyChanged(found.name))  # a publisher may have learned that there is none

    @changing("DeleteExchange", "vhost", "name", "if_unused")
    async def delete_exchange(self, principal: Principal, vhost: str, name: str, *, if_unused: bool = False) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        await found.delete_exchange(principal.in_vhost(found.name), exchange_name(name), if_unused=if_unused)
        self._events.emit(TopologyChanged(found.name))

    # ------------------------------------------------------------ queues

    @reading
    async def list_queues(
        self, principal: Principal, vhost: str, *, after: str | None = None, limit: int = PAGE_SIZE_MAX
    ) -> list[QueueStatus]:
        """Return a page in the order of names, beginning after the name `after`."""
        found = self._vhosts.get(vhost_name(vhost))
        return await found.list_queues(principal.in_vhost(found.name), after=after, limit=limit)

    @reading
    async def get_queue(self, principal: Principal, vhost: str, name: str) -> QueueStatus:
        found = self._vhosts.get(vhost_name(vhost))
        return await found.queue_status(principal.in_vhost(found.name), existing_queue_name(name))

    @repeated
    async def declare_queue(self, principal: Principal, vhost: str, wanted: DeclareQueue) -> QueueStatus:
        """Declare a queue; an exclusive one belongs to the principal's connection."""
        found = self._vhosts.get(vhost_name(vhost))
        try:
            return await found.declare_queue(principal.in_vhost(found.name), wanted)
        finally:
            if wanted.exclusive and principal.connection.has_ended:
                await self._sessions.end_queues(principal.connection_id)

    @changing("DeleteQueue", "vhost", "name", "if_unused", "if_empty")
    async def delete_queue(
        self, principal: Principal, vhost: str, name: str, *, if_unused: bool = False, if_empty: bool = False
    ) -> int:
        """Return the number of messages that were deleted with it."""
        found = self._vhosts.get(vhost_name(vhost))
        rights, queue = principal.in_vhost(found.name), existing_queue_name(name)
        return await found.delete_queue(rights, queue, if_unused=if_unused, if_empty=if_empty)

    @changing("PurgeQueue", "vhost", "name")
    async def purge_queue(self, principal: Principal, vhost: str, name: str) -> int:
        """Drop the ready messages, and return their number."""
        found = self._vhosts.get(vhost_name(vhost))
        return await found.purge_queue(principal.in_vhost(found.name), existing_queue_name(name))

    async def queue_unused(self, vhost: str, name: str, queue_id: QueueId) -> None:
        """Delete an auto-delete queue that lost its last consumer, or an expired one, as the engine reports."""
        try:
            await self._vhosts.get(VhostName(vhost)).queue_unused(QueueName(name), queue_id)
        except RefusedError:
            return  # queue or vhost went first
        except FaultError as fault:
            _log.warning("an unused queue stays", queue=name, vhost=vhost, fault=str(fault))

    # ------------------------------------------------------------ bindings

    @reading
    async def list_bindings(
        self,
        principal: Principal,
        vhost: str,
        *,
        source: str | None = None,
        destination: str | None = None,
        after: BindingPlace | None = None,
        limit: int = PAGE_SIZE_MAX,
    ) -> list[Binding]:
        """Return a page of bindings, beginning after a place; both names narrow the list."""
        found = self._vhosts.get(vhost_name(vhost))
        rights, exchange = principal.in_vhost(found.name), None if source is None else exchange_name(source)
        return await found.list_bindings(rights, source=exchange, destination=destination, after=after, limit=limit)

    @repeated
    async def bind(self, principal: Principal, vhost: str, binding: Binding) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        await found.bind(principal.in_vhost(found.name), binding)

    @changing("Unbind", "vhost", "binding")
    async def unbind(self, principal: Principal, vhost: str, binding: Binding) -> None:
        found = self._vhosts.get(vhost_name(vhost))
        await found.unbind(principal.in_vhost(found.name), binding)
