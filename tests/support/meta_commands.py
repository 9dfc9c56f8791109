"""Random commands on the metadata of a cluster, with few names, so that they meet each other.

Things that end with their broker have names of their own session, and no durable auto-delete exchange is bound to them:
one broker alone knows no sessions.
"""

from random import Random
from typing import Final, cast

from penstock.cluster.meta.commands import (
    CreateVhost,
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    DeleteVhost,
    GrowVhost,
    InVhost,
    MetaCommand,
    PutUser,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
)
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
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
    Unbind,
)
from penstock.metadata.policies import Policy
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.storage.records_json import PermissionRecord, TopicRecord

VHOSTS: Final = [VhostName("/"), VhostName("blue")]
QUEUES: Final = [QueueName(name) for name in ("qa", "qb", "qc")]
EXCHANGES: Final = [ExchangeName(name) for name in ("xa", "xb")]
USERS: Final = ["ann", "bob"]
DIGEST: Final = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0c2E$uV8QKAjRlPCNPHEs7tbmGPe93RvYuTCvsRMf8UJ4f6I"


def random_command(random: Random, session: int) -> MetaCommand:
    vhost = random.choice(VHOSTS)
    if random.random() < 0.7:
        return InVhost(vhost, _in_vhost(random, session))
    user = random.choice(USERS)
    makers = (
        lambda: CreateVhost(vhost, random.randint(1, 2)),
        lambda: CreateVhost(vhost),
        lambda: DeleteVhost(vhost),
        lambda: GrowVhost(vhost, random.randint(1, 4)),
        lambda: PutUser(user, random.choice([None, ("administrator",), ()]), random.choice([None, DIGEST]), "argon2id"),
        lambda: PutUser("root", ("administrator",), DIGEST, "argon2id"),
        lambda: DeleteUser(user),
        lambda: SetPermission(user, vhost, PermissionRecord(random.choice(["", ".*"]), ".*", "")),
        lambda: DeletePermission(user, vhost),
        lambda: SetTopicPermission(user, vhost, random.choice(EXCHANGES), TopicRecord("a.*", random.choice("ab"))),
        lambda: DeleteTopicPermissions(user, vhost, random.choice([None, *EXCHANGES])),
        lambda: SetUserLimits(user, random.choice([Limits(), Limits(connections_max=3), Limits(streams_max=9)])),
    )
    return cast(MetaCommand, random.choice(makers)())


def _in_vhost(random: Random, session: int) -> Command:
    queue, exchange, connection = random.choice(QUEUES), random.choice(EXCHANGES), ConnectionId(random.randint(1, 2))
    own = QueueName(f"own-{session}-{connection}")
    durable = Binding(exchange, DestinationKind.QUEUE, queue, random.choice([RoutingKey(""), RoutingKey("a")]))
    makers = (
        lambda: DeclareQueue(
            queue, connection, arguments={"x-max-length": 5, "x-expires": 9} if random.random() < 0.5 else {}
        ),
        lambda: DeclareQueue(queue, connection, arguments={"x-max-priority": 3}),
        lambda: DeclareQueue(own, connection, durable=False, exclusive=True),
        lambda: DeleteQueue(queue, connection),
        lambda: DeclareExchange(exchange, random.choice(["topic", "direct"])),
        lambda: DeleteExchange(exchange, if_unused=random.random() < 0.5),
        lambda: Bind(durable, connection),
        lambda: Bind(Binding(exchange, DestinationKind.QUEUE, own, RoutingKey("own")), connection),
        lambda: Unbind(durable, connection),
        lambda: ConnectionClosed(connection),
        lambda: DeclareExchange(ExchangeName("auto"), "fanout", auto_delete=True),
        lambda: Bind(Binding(ExchangeName("auto"), DestinationKind.QUEUE, QueueName("qa")), connection),
        lambda: DeclareStream("log", 2),
        lambda: DeleteStream("log"),
        lambda: SetPolicy(
            Policy("p", "^q", {"message-ttl": random.randint(1, 3), "expires": 5}), random.random() < 0.3
        ),
        lambda: DeletePolicy("p", random.random() < 0.3),
        lambda: SetLimits(random.choice([Limits(), Limits(queues_max=100)])),
        lambda: SetDefaultQueueType(random.choice(["classic", "quorum"])),
    )
    return cast(Command, random.choice(makers)())
