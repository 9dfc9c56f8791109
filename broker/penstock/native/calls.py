"""The kinds of requests that a `Call` of the listener can have, by their answers."""

from penstock._core import (
    BindingChange,
    DescribeStreams,
    Disconnected,
    EndQueues,
    Enter,
    ExchangeDeclare,
    ExchangeDelete,
    FindLeader,
    NamesUser,
    OpenConsume,
    OpenGet,
    OpenPublish,
    OpenRead,
    OpenSettle,
    OpenStage,
    PermitExchange,
    PermitKeys,
    PermitUserId,
    QueueDeclare,
    QueueDelete,
    QueuePurge,
    QueueUnused,
    ReadArchive,
    Renew,
    UnaryCall,
)

Admittable = OpenPublish | PermitExchange | PermitUserId | OpenConsume | OpenRead | OpenGet | OpenSettle
"""`Call.admit` answers these with a virtual host and a queue."""
TopologyRequest = ExchangeDeclare | ExchangeDelete | QueueDeclare | QueueDelete | QueuePurge | BindingChange
"""`Call.changed` answers these."""
Question = (
    Admittable
    | TopologyRequest
    | UnaryCall
    | PermitKeys
    | OpenStage
    | ReadArchive
    | DescribeStreams
    | Enter
    | Renew
    | NamesUser
    | FindLeader
    | EndQueues
)
"""These have an answer, or are refused."""
Event = Disconnected | QueueUnused
"""These have no answer."""

__all__ = ["Admittable", "Event", "Question", "TopologyRequest"]
