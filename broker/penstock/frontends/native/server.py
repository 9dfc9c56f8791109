"""Takes calls from the native listener and runs each in a task of its own, by the protocol that its client speaks.

So a call that waits for a sync does not delay the others. The listener bounds the number of calls; the services decide
them.
"""

import asyncio
from collections.abc import Callable, Mapping

from penstock.frontends.native.ports import Call, Decider, Listener
from penstock.kit.tasks import spawn
from penstock.model.names import ConnectionId, QueueId
from penstock.native import Disconnected, Question, QueueUnused, UnaryCall
from penstock.services import Services


class NativeFrontend:
    """Runs between `start` and `stop`."""

    def __init__(self, listener: Listener, services: Services, protocols: Mapping[str, Decider]) -> None:
        self._listener = listener
        self._services = services
        self._protocols = protocols

    def start(self) -> None:
        self._services.listeners.add(self._listener)
        asyncio.get_running_loop().add_reader(self._listener.wake_fd, self._take)
        self._take()  # calls that came before this

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(self._listener.wake_fd)
        self._services.listeners.remove(self._listener)

    def _take(self) -> None:
        for call in self._listener.take():
            match call.request:
                case Disconnected():
                    ended = self._services.sessions.end(ConnectionId(call.connection))
                    spawn(ended, name=f"{call.protocol} disconnected")
                case QueueUnused(vhost=vhost, queue=queue, queue_id=queue_id):
                    unused = self._services.topology.queue_unused(vhost, queue, QueueId(queue_id))
                    spawn(unused, name=f"{call.protocol} unused")
                case question:
                    connection = self._services.connections.open(ConnectionId(call.connection), call.peer)
                    protocol = self._protocols[call.protocol]
                    deciding = protocol.decide(call, question, connection)
                    name = f"{call.protocol} {name_of(question)}"
                    spawn(deciding, name=name, on_bug=_refusing(protocol, call))


def name_of(question: Question) -> str:
    return question.method if isinstance(question, UnaryCall) else type(question).__name__


def _refusing(protocol: Decider, call: Call) -> Callable[[Exception], None]:
    def refuse(_: Exception) -> None:
        protocol.refuse_for_a_bug(call)

    return refuse
