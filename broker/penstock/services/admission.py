"""Admission to the message paths: publishing to an exchange, and reading a queue.

A listener caches the answer and moves messages without asking again, until an event invalidates it. With `again` the
stream is open already, and its principal is authorized anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.identity import Tag
from penstock.model.errors import AccessRefusedError, Thing
from penstock.model.names import QueueId, VhostName, exchange_name, existing_queue_name, vhost_name
from penstock.native import Replica
from penstock.services.connections import Connection, Connections
from penstock.services.principal import Principal
from penstock.services.token_sessions import TokenSessions
from penstock.services.verbs import QUESTIONS_MAX, decided, reading
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.vhost import Vhost

NO_QUEUE = QueueId(0)


@dataclass(frozen=True, slots=True)
class Admission:
    """`by_key`: each routing key has to be asked for besides. `replica`: the stream is read there."""

    vhost: VhostName
    queue_id: QueueId = NO_QUEUE
    by_key: bool = False
    replica: Replica | None = None


class AdmissionVerbs:
    def __init__(self, vhosts: AllVhosts, connections: Connections, tokens: TokenSessions) -> None:
        self._vhosts = vhosts
        self._connections = connections
        self._tokens = tokens

    @reading
    async def open_publisher(
        self, principal: Principal, vhost: str, *, again: bool = False, is_entering: bool = False
    ) -> Admission:
        """Admit a publisher to a virtual host; it asks for each exchange when it first writes to it.

        With `is_entering` it is a connection that may declare without ever moving messages.
        """
        found = self._vhosts.get(vhost_name(vhost))
        rights = principal.in_vhost(found.name)
        if is_entering:
            rights.require_entry(Thing("vhost", found.name))
        else:
            await found.admit_entry(rights)
        self._entered(principal, found, again=again)
        return Admission(found.name)

    async def other_leader(self, connection: Connection, vhost: str, unreachable: str) -> str | None:
        """Return the broker to which a connection that entered a virtual host is relayed; None to serve it here."""
        if not connection.is_in(vhost):
            return None
        return await self._vhosts.get(vhost_name(vhost)).other_leader(unreachable)

    async def check_leader(self, vhost: str, broker: str) -> None:
        """Return while a broker leads to which a connection is relayed. Raises NotLedError when another one does."""
        await self._vhosts.get(vhost_name(vhost)).check_leader(broker)

    @reading
    async def publish(self, principal: Principal, vhost: str, exchange: str) -> Admission:
        found = self._vhosts.get(vhost_name(vhost))
        by_key = await found.admit_publish(principal.in_vhost(found.name), exchange_name(exchange))
        return Admission(found.name, by_key=by_key)

    @reading
    async def publish_as_another(self, principal: Principal, vhost: str) -> Admission:
        """Admit a publisher to publish with another user's name as `user_id`."""
        if Tag.IMPERSONATOR not in principal.tags:
            raise AccessRefusedError(
                Thing("user", principal.name),
                "may not publish with another user's name",
                "let an administrator give the user the tag impersonator",
            )
        return Admission(self._vhosts.get(vhost_name(vhost)).name)

    @reading
    async def publish_keys(self, principal: Principal, vhost: str, exchange: str, keys: Sequence[str]) -> list[bool]:
        """Return which routing keys the principal may publish with to an exchange that it was admitted to."""
        found = self._vhosts.get(vhost_name(vhost))

        async def look() -> list[bool]:
            return found.may_publish_keys(principal.in_vhost(found.name), exchange_name(exchange), keys)

        return await decided(principal, look, QUESTIONS_MAX + len(keys))

    @reading
    async def open_consumer(
        self, principal: Principal, vhost: str, queue: str, *, may_be_stream: bool = False, again: bool = False
    ) -> Admission:
        """Admit a consumer; `may_be_stream` where the protocol reads streams in the same way."""
        found, admission = await self._consumed(principal, vhost, queue, may_be_stream=may_be_stream)
        self._entered(principal, found, again=again)
        return admission

    @reading
    async def get(self, principal: Principal, vhost: str, queue: str, *, again: bool = False) -> Admission:
        found = self._vhosts.get(vhost_name(vhost))
        queue_id = await found.admit_get(principal.in_vhost(found.name), existing_queue_name(queue))
        self._entered(principal, found, again=again)
        return Admission(found.name, queue_id)

    @reading
    async def settle(self, principal: Principal, vhost: str, queue: str) -> Admission:
        _, admission = await self._consumed(principal, vhost, queue)
        return admission

    @reading
    async def open_reader(
        self,
        principal: Principal,
        vhost: str,
        partition: str,
        *,
        group: str = "",
        single_active: bool = False,
        again: bool = False,
    ) -> Admission:
        """Admit a reader of a stream's partition."""
        found = self._vhosts.get(vhost_name(vhost))
        rights, name = principal.in_vhost(found.name), existing_queue_name(partition)
        queue_id = await found.streams.admit_read(rights, name, group, single_active=single_active)
        self._entered(principal, found, again=again)
        return Admission(found.name, queue_id)

    @reading
    async def open_reader_of_replica(
        self, principal: Principal, vhost: str, partition: str, *, again: bool = False
    ) -> Admission | None:
        """Admit a reader to this broker's replica of a partition; None where it is to be read at the leader."""
        found = self._vhosts.get(vhost_name(vhost))
        rights, name = principal.in_vhost(found.name), existing_queue_name(partition)
        readable = await found.streams.admit_read_of_replica(rights, name, again=again)
        if readable is None:
            return None
        self._entered(principal, found, again=again)
        return Admission(found.name, readable.queue_id, replica=readable.replica)

    @reading
    async def watch_streams(self, principal: Principal, vhost: str, *, again: bool = False) -> Admission:
        """Admit a call that waits for messages of streams."""
        found = self._vhosts.get(vhost_name(vhost))
        await found.admit_entry(principal.in_vhost(found.name))
        self._entered(principal, found, again=again)
        return Admission(found.name)

    async def _consumed(
        self, principal: Principal, vhost: str, queue: str, *, may_be_stream: bool = False
    ) -> tuple[Vhost, Admission]:
        found = self._vhosts.get(vhost_name(vhost))
        rights, name = principal.in_vhost(found.name), existing_queue_name(queue)
        queue_id = await found.admit_consume(rights, name, may_be_stream=may_be_stream)
        return found, Admission(found.name, queue_id)

    def _entered(self, principal: Principal, vhost: Vhost, *, again: bool) -> None:
        """Count the connection in the virtual host, and let the stream end with its token."""
        if not again:
            self._connections.enter(principal.connection, vhost.name, vhost.limits.connections_max)
            self._tokens.opened(principal)
