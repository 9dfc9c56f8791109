"""The cluster's metadata for the services of this broker: commands with a limit of time, and a state to read.

It decides nothing. A command without an answer in time has an unknown outcome.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final

from penstock.cluster.meta.asking import Asker
from penstock.cluster.meta.commands import Addresses, InVhost, MetaAnswer, MetaCommand
from penstock.cluster.meta.decide import connection_in_cluster
from penstock.cluster.meta.log import NotLeaderError, UnknownOutcomeError
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.cluster.translation import broker_number
from penstock.metadata.commands import ConnectionClosed, QueueUnused
from penstock.model.errors import FaultError, StoppedError, Thing
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.native import QueueCounts, RelayOrigin, VhostCounts
from penstock.node.in_cluster.shared_question import SharedQuestion

COMMAND_S: Final = 15.0
"""A client hears after this time that the outcome of its command is unknown."""
QUESTION_S: Final = 5.0
CLEANING: Final = (ConnectionClosed, QueueUnused)
"""Commands of the broker itself: no client repeats them, so they wait until there is a leader."""


CountsOf = Callable[[BrokerName, VhostName, Sequence[QueueName]], Coroutine[Any, Any, Mapping[QueueName, QueueCounts]]]


TotalsOf = Callable[[BrokerName, Sequence[VhostName]], Coroutine[Any, Any, Mapping[VhostName, VhostCounts]]]


OriginOf = Callable[[ConnectionId], RelayOrigin | None]


def _no_origin(_: ConnectionId) -> None:
    return None


async def _no_counts(_: BrokerName, __: VhostName, ___: Sequence[QueueName]) -> Mapping[QueueName, QueueCounts]:
    return {}


async def _no_totals(_: BrokerName, __: Sequence[VhostName]) -> Mapping[VhostName, VhostCounts]:
    return {}


class Metadata:
    """It is used once the broker has joined. `session` returns the number of its session.

    `served_by` returns when another broker has for the queues of a virtual host all that is applied here. `counts_of`
    returns the counts of queues that another broker leads, and `totals_of` the messages in virtual hosts that it leads;
    both are set when the virtual hosts are opened. `origin_of`
    returns where a connection is relayed from, by the number of that broker, and is set when clients are served.

    `state` is the one of the start. A broker that lags far takes a copy of another one's later: `is_replaced` says so,
    and the broker has to be started again.
    """

    def __init__(
        self,
        me: BrokerName,
        asker: Asker,
        current: Callable[[], MetaState],
        session: Callable[[], int],
        served_by: Callable[[BrokerName, VhostName], Coroutine[Any, Any, None]],
    ) -> None:
        self.me = me
        self.served_by = served_by
        self.counts_of: CountsOf = _no_counts
        self.totals_of: TotalsOf = _no_totals
        self.origin_of: OriginOf = _no_origin
        self.state = current()
        self._asker = asker
        self._current = current
        self._session = session
        self._latest = SharedQuestion(self._ask_latest)

    async def submit(self, command: MetaCommand) -> MetaAnswer:
        """Return the answer when the command is committed and applied here.

        Raises the command's RefusedError, and UnknownOutcomeError without an answer in time.
        """
        if isinstance(command, InVhost) and isinstance(command.command, CLEANING):
            return await self._asker.submit(command)
        try:
            async with asyncio.timeout(COMMAND_S):
                return await self._asker.submit(command)
        except TimeoutError as error:
            raise UnknownOutcomeError from error

    async def latest(self) -> None:
        """Return when everything is applied here that any broker has answered before.

        Raises NotLeaderError when no leader says how far that is, and StoppedError.
        """
        await self._latest.answered()
        if self.is_replaced:
            raise StoppedError(Thing("shard", "meta"), "this broker has taken a copy of another one's state")

    async def _ask_latest(self) -> None:
        try:
            async with asyncio.timeout(QUESTION_S):
                await self._asker.latest()
        except TimeoutError as error:
            raise NotLeaderError from error

    @property
    def is_replaced(self) -> bool:
        return self._current() is not self.state

    async def catch_up(self) -> None:
        """Do the same, as far as it is possible now."""
        try:
            await self.latest()
        except FaultError:
            return

    def number_of(self, connection: ConnectionId) -> ConnectionId:
        """Return the number that a connection has in the cluster: for one that is relayed, where it is relayed from."""
        origin = self.origin_of(connection)
        if origin is None:
            return connection_in_cluster(connection, self._session())
        number, there = origin.broker, ConnectionId(origin.connection)
        sessions = (each.session for name, each in self.state.brokers.items() if broker_number(name) == number)
        return connection_in_cluster(there, next(sessions, 0))

    def addresses_of(self, broker: BrokerName) -> Addresses:
        """Return where a broker serves clients, as it said when it joined."""
        found = self.state.brokers.get(broker)
        return Addresses() if found is None else found.addresses
