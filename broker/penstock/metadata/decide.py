"""The machine's one step: a command meets the state, which changes at once; what must follow outside is returned.

A command that is refused raises before anything has changed. The host performs every decision's effects in the order
of decisions; if it cannot, it must not go on with this state.
"""

from penstock.metadata import bindings as binding_rules
from penstock.metadata import exchanges, queues, streams
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeclareStream,
    DeleteExchange,
    DeleteQueue,
    DeleteStream,
    PurgeQueue,
    QueueUnused,
    Unbind,
)
from penstock.metadata.effects import Decision
from penstock.metadata.topology import VhostTopology


def decide(state: VhostTopology, command: Command) -> Decision:  # noqa: C901, PLR0911 - one branch a command
    match command:
        case DeclareExchange():
            return exchanges.declare(state, command)
        case DeleteExchange():
            return exchanges.delete(state, command)
        case DeclareQueue():
            return queues.declare(state, command)
        case DeleteQueue():
            return queues.delete(state, command)
        case PurgeQueue():
            return queues.purge(state, command)
        case Bind():
            return binding_rules.bind(state, command)
        case Unbind():
            return binding_rules.unbind(state, command)
        case ConnectionClosed():
            return queues.connection_closed(state, command)
        case QueueUnused():
            return queues.unused(state, command)
        case DeclareStream():
            return streams.declare(state, command)
        case DeleteStream():
            return streams.delete(state, command)
