"""The machine's step: decides a command, changes the state at once, and returns the effects.

A refused command raises before anything has changed. The host performs every decision's effects in the order of
decisions; if it cannot, it must not go on with this state.
"""

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from penstock.metadata import bindings as binding_rules
from penstock.metadata import exchanges, limit_rules, policy_rules, queues, streams
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeclareStream,
    DeleteExchange,
    DeletePolicy,
    DeleteQueue,
    DeleteStream,
    PurgeQueue,
    QueueUnused,
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
    Unbind,
)
from penstock.metadata.effects import Decision
from penstock.metadata.topology import VhostTopology

_Rule: TypeAlias = Callable[[VhostTopology, Any], Decision]
_RULES: Final[dict[type, _Rule]] = {
    DeclareExchange: exchanges.declare,
    DeleteExchange: exchanges.delete,
    DeclareQueue: queues.declare,
    DeleteQueue: queues.delete,
    PurgeQueue: queues.purge,
    Bind: binding_rules.bind,
    Unbind: binding_rules.unbind,
    ConnectionClosed: queues.connection_closed,
    QueueUnused: queues.unused,
    SetPolicy: policy_rules.set_policy,
    DeletePolicy: policy_rules.delete_policy,
    DeclareStream: streams.declare,
    DeleteStream: streams.delete,
    SetLimits: limit_rules.set_limits,
    SetDefaultQueueType: queues.set_default_type,
}


def decide(state: VhostTopology, command: Command) -> Decision:
    return _RULES[type(command)](state, command)
