"""Walks every method of every service, as reflection lists them, with every kind of caller.

It records how each call ended. The permission of each method is written here; a missing one is a hole.
"""

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import grpc
from google.protobuf.message import Message
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from penstock.v1 import admin_pb2 as admin
from penstock.v1 import backup_pb2 as backup
from penstock.v1 import cluster_pb2 as cluster
from penstock.v1 import messaging_pb2 as messaging
from penstock.v1 import staging_pb2 as staging
from penstock.v1 import streams_pb2 as streams

SECRET = "a secret"
Metadata = tuple[tuple[str, str], ...]


class Needs(Enum):
    """Permissions that a caller needs."""

    NOTHING = "nothing"
    A_NAME = "a name"
    THE_VHOST = "permissions in the vhost"
    A_TAG = "a tag"


class Caller(Enum):
    """Kinds of callers, from unauthenticated to the right one."""

    NOBODY = "none"
    WRONG_PASSWORD = "wrong password"
    NO_PERMISSION = "no permission"
    WRONG_VHOST = "wrong vhost"
    NO_TAG = "no tag"
    RIGHT = "right"


_MEETS = {
    Needs.NOTHING: set(Caller),
    Needs.A_NAME: {Caller.NO_PERMISSION, Caller.WRONG_VHOST, Caller.NO_TAG, Caller.RIGHT},
    Needs.THE_VHOST: {Caller.NO_TAG, Caller.RIGHT},
    Needs.A_TAG: {Caller.RIGHT},
}


@dataclass(frozen=True)
class Method:
    """A method; `request` makes its request; `ends` is how it ends for the right caller."""

    needs: Needs
    request: Callable[[str], Message]
    ends: grpc.StatusCode = grpc.StatusCode.OK


def _queue(vhost: str) -> admin.DeclareQueueRequest:
    return admin.DeclareQueueRequest(vhost=vhost, queue=admin.Queue(name="walked", durable=True))


def _exchange(vhost: str) -> admin.DeclareExchangeRequest:
    return admin.DeclareExchangeRequest(
        vhost=vhost, exchange=admin.Exchange(name="walked", type="direct", durable=True)
    )


def _binding() -> admin.Binding:
    return admin.Binding(source="amq.direct", destination="kept", routing_key="walked")


def _permission(vhost: str) -> admin.Permission:
    return admin.Permission(user="subject", vhost=vhost, read=".*")


def _topic(vhost: str) -> admin.SetTopicPermissionRequest:
    permission = admin.TopicPermission(user="subject", vhost=vhost, exchange="amq.topic", write="walked")
    return admin.SetTopicPermissionRequest(permission=permission)


def _target(vhost: str) -> staging.StageTarget:
    return staging.StageTarget(vhost=vhost, stage="walked", exchange="amq.fanout")


def _policy(vhost: str) -> admin.SetPolicyRequest:
    request = admin.SetPolicyRequest(vhost=vhost, policy=admin.Policy(name="walked", pattern="^none$"))
    request.policy.definition["durability"].string_value = "disk"
    return request


# In an order in which each works after those before it, and nothing is left in the end.
METHODS: dict[str, Method] = {
    "GetStatus": Method(Needs.A_NAME, lambda _: admin.GetStatusRequest()),
    "ListConnections": Method(Needs.A_NAME, lambda _: admin.ListConnectionsRequest()),
    "CloseConnection": Method(Needs.A_TAG, lambda _: admin.CloseConnectionRequest(id=2**40), grpc.StatusCode.NOT_FOUND),
    "ListConsumers": Method(Needs.A_NAME, lambda _: admin.ListConsumersRequest()),
    "ListVhosts": Method(Needs.A_NAME, lambda _: admin.ListVhostsRequest()),
    "ListUsers": Method(Needs.A_NAME, lambda _: admin.ListUsersRequest()),
    "ListPermissions": Method(Needs.A_NAME, lambda _: admin.ListPermissionsRequest()),
    "ListTopicPermissions": Method(Needs.A_NAME, lambda _: admin.ListTopicPermissionsRequest()),
    "RefreshToken": Method(Needs.A_NAME, lambda _: admin.RefreshTokenRequest(), grpc.StatusCode.FAILED_PRECONDITION),
    "CreateVhost": Method(Needs.A_TAG, lambda _: admin.CreateVhostRequest(name="walked")),
    "DeleteVhost": Method(Needs.A_TAG, lambda _: admin.DeleteVhostRequest(name="walked")),
    "GetVhostLimits": Method(Needs.THE_VHOST, lambda vhost: admin.GetVhostLimitsRequest(vhost=vhost)),
    "SetVhostLimits": Method(Needs.A_TAG, lambda vhost: admin.SetVhostLimitsRequest(vhost=vhost)),
    "SetVhostShards": Method(Needs.A_TAG, lambda vhost: admin.SetVhostShardsRequest(name=vhost, shards=3)),
    "SetDefaultQueueType": Method(
        Needs.A_TAG, lambda vhost: admin.SetDefaultQueueTypeRequest(name=vhost, default_queue_type="classic")
    ),
    "GetUserLimits": Method(Needs.A_NAME, lambda _: admin.GetUserLimitsRequest()),
    "SetUserLimits": Method(Needs.A_TAG, lambda _: admin.SetUserLimitsRequest(name="walked")),
    "PutUser": Method(Needs.A_TAG, lambda _: admin.PutUserRequest(name="subject", password="x")),
    "SetPermission": Method(Needs.A_TAG, lambda vhost: admin.SetPermissionRequest(permission=_permission(vhost))),
    "DeletePermission": Method(Needs.A_TAG, lambda vhost: admin.DeletePermissionRequest(user="subject", vhost=vhost)),
    "SetTopicPermission": Method(Needs.A_TAG, _topic),
    "DeleteTopicPermission": Method(
        Needs.A_TAG, lambda vhost: admin.DeleteTopicPermissionRequest(user="subject", vhost=vhost)
    ),
    "DeleteUser": Method(Needs.A_TAG, lambda _: admin.DeleteUserRequest(name="subject")),
    "SetPolicy": Method(Needs.A_TAG, _policy),
    "ListPolicies": Method(Needs.THE_VHOST, lambda vhost: admin.ListPoliciesRequest(vhost=vhost)),
    "DeletePolicy": Method(Needs.A_TAG, lambda vhost: admin.DeletePolicyRequest(vhost=vhost, name="walked")),
    "ExportDefinitions": Method(Needs.A_TAG, lambda vhost: admin.ExportDefinitionsRequest(vhost=vhost)),
    "ImportDefinitions": Method(Needs.A_TAG, lambda vhost: admin.ImportDefinitionsRequest(vhost=vhost, json=b"{}")),
    "Backup": Method(
        Needs.A_TAG, lambda _: backup.BackupRequest(directory="relative"), grpc.StatusCode.INVALID_ARGUMENT
    ),
    "BeginBackup": Method(Needs.A_TAG, lambda _: backup.BeginBackupRequest()),
    "ReadBackup": Method(Needs.A_TAG, lambda _: backup.ReadBackupRequest(id="none"), grpc.StatusCode.NOT_FOUND),
    "EndBackup": Method(Needs.A_TAG, lambda _: backup.EndBackupRequest(id="none")),
    # This broker is in no cluster.
    "GetClusterStatus": Method(
        Needs.A_TAG, lambda _: cluster.GetClusterStatusRequest(), grpc.StatusCode.FAILED_PRECONDITION
    ),
    "MoveLeader": Method(
        Needs.A_TAG,
        lambda vhost: cluster.MoveLeaderRequest(vhost=vhost, broker="mq-0"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "MoveReplica": Method(
        Needs.A_TAG,
        lambda vhost: cluster.MoveReplicaRequest(vhost=vhost, source="mq-0", to="mq-1"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "AddBroker": Method(
        Needs.A_TAG,
        lambda _: cluster.AddBrokerRequest(broker="mq-3", peers="127.0.0.1:5681"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "RemoveBroker": Method(
        Needs.A_TAG,
        lambda _: cluster.RemoveBrokerRequest(broker="mq-0"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "SetDraining": Method(
        Needs.A_TAG,
        lambda _: cluster.SetDrainingRequest(broker="mq-0", draining=True),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "RecoverShard": Method(
        Needs.A_TAG,
        lambda vhost: cluster.RecoverShardRequest(vhost=vhost, broker="mq-0"),
        grpc.StatusCode.FAILED_PRECONDITION,
    ),
    "DeclareQueue": Method(Needs.THE_VHOST, _queue),
    "ListQueues": Method(Needs.THE_VHOST, lambda vhost: admin.ListQueuesRequest(vhost=vhost)),
    "PurgeQueue": Method(Needs.THE_VHOST, lambda vhost: admin.PurgeQueueRequest(vhost=vhost, name="kept")),
    "DeclareExchange": Method(Needs.THE_VHOST, _exchange),
    "ListExchanges": Method(Needs.THE_VHOST, lambda vhost: admin.ListExchangesRequest(vhost=vhost)),
    "DeleteExchange": Method(Needs.THE_VHOST, lambda vhost: admin.DeleteExchangeRequest(vhost=vhost, name="walked")),
    "Bind": Method(Needs.THE_VHOST, lambda vhost: admin.BindRequest(vhost=vhost, binding=_binding())),
    "ListBindings": Method(Needs.THE_VHOST, lambda vhost: admin.ListBindingsRequest(vhost=vhost)),
    "Unbind": Method(Needs.THE_VHOST, lambda vhost: admin.UnbindRequest(vhost=vhost, binding=_binding())),
    "Publish": Method(Needs.THE_VHOST, lambda vhost: messaging.PublishRequest(open=messaging.PublishOpen(vhost=vhost))),
    "Consume": Method(
        Needs.THE_VHOST,
        lambda vhost: messaging.ConsumeRequest(open=messaging.ConsumeOpen(vhost=vhost, queue="kept")),
    ),
    "Get": Method(Needs.THE_VHOST, lambda vhost: messaging.GetRequest(vhost=vhost, queue="kept", auto_ack=True)),
    "Peek": Method(Needs.THE_VHOST, lambda vhost: messaging.PeekRequest(vhost=vhost, queue="kept")),
    "Settle": Method(
        Needs.THE_VHOST,
        lambda vhost: messaging.SettleRequest(
            vhost=vhost, queue="kept", settlement=messaging.Settlement(outcome=messaging.OUTCOME_ACK)
        ),
    ),
    "ReserveLease": Method(
        Needs.THE_VHOST,
        lambda vhost: messaging.ReserveLeaseRequest(vhost=vhost, queue="kept", owner="walker", lease=1),
    ),
    "ListLeases": Method(Needs.THE_VHOST, lambda vhost: messaging.ListLeasesRequest(vhost=vhost, queue="kept")),
    "AckLeases": Method(
        Needs.THE_VHOST, lambda vhost: messaging.AckLeasesRequest(vhost=vhost, queue="kept", owner="walker")
    ),
    "ReleaseLeases": Method(
        Needs.THE_VHOST, lambda vhost: messaging.ReleaseLeasesRequest(vhost=vhost, queue="kept", owner="walker")
    ),
    "DeclareStream": Method(Needs.THE_VHOST, lambda vhost: streams.DeclareStreamRequest(vhost=vhost, name="flow")),
    "ListStreams": Method(Needs.THE_VHOST, lambda vhost: streams.ListStreamsRequest(vhost=vhost)),
    "GetOffsets": Method(Needs.THE_VHOST, lambda vhost: streams.GetOffsetsRequest(vhost=vhost, stream="flow")),
    "Read": Method(
        Needs.THE_VHOST,
        lambda vhost: streams.ReadRequest(open=streams.ReadOpen(vhost=vhost, partition="flow")),
    ),
    "StoreOffset": Method(
        Needs.THE_VHOST,
        lambda vhost: streams.StoreOffsetRequest(vhost=vhost, partition="flow", group="walkers", offset=1_000),
        grpc.StatusCode.INVALID_ARGUMENT,
    ),
    "ListGroups": Method(Needs.THE_VHOST, lambda vhost: streams.ListGroupsRequest(vhost=vhost, stream="flow")),
    "DeleteGroup": Method(
        Needs.THE_VHOST, lambda vhost: streams.DeleteGroupRequest(vhost=vhost, stream="flow", group="walkers")
    ),
    "TrimStream": Method(
        Needs.THE_VHOST, lambda vhost: streams.TrimStreamRequest(vhost=vhost, partition="flow", before=1)
    ),
    "GetProducer": Method(Needs.THE_VHOST, lambda vhost: streams.GetProducerRequest(vhost=vhost, producer="nobody")),
    "ListProducers": Method(Needs.THE_VHOST, lambda vhost: streams.ListProducersRequest(vhost=vhost)),
    "DeleteProducer": Method(Needs.A_TAG, lambda vhost: streams.DeleteProducerRequest(vhost=vhost, producer="nobody")),
    "Stage": Method(Needs.THE_VHOST, lambda vhost: staging.StageRequest(target=_target(vhost), batch=1)),
    "PublishStaged": Method(
        Needs.THE_VHOST, lambda vhost: staging.PublishStagedRequest(target=_target(vhost), batch=1)
    ),
    "DiscardStaged": Method(
        Needs.THE_VHOST, lambda vhost: staging.DiscardStagedRequest(target=_target(vhost), batch=2)
    ),
    "ListStages": Method(Needs.THE_VHOST, lambda vhost: staging.ListStagesRequest(vhost=vhost)),
    "DeleteStage": Method(Needs.THE_VHOST, lambda vhost: staging.DeleteStageRequest(vhost=vhost, name="walked")),
    "DeleteStream": Method(Needs.THE_VHOST, lambda vhost: streams.DeleteStreamRequest(vhost=vhost, name="flow")),
    "DeleteQueue": Method(Needs.THE_VHOST, lambda vhost: admin.DeleteQueueRequest(vhost=vhost, name="walked")),
}
# gRPC's own services, which need no authentication: they reveal nothing of the broker's content.
PUBLIC = ("grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")


def credentials(caller: Caller) -> Metadata:
    if caller is Caller.NOBODY:
        return ()
    user = {
        Caller.WRONG_PASSWORD: "right",
        Caller.NO_PERMISSION: "bare",
        Caller.WRONG_VHOST: "elsewhere",
        Caller.NO_TAG: "plain",
        Caller.RIGHT: "right",
    }[caller]
    password = "wrong" if caller is Caller.WRONG_PASSWORD else SECRET
    return (("authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()),)


def services(channel: grpc.Channel) -> list[str]:
    """Return the services as the broker lists them."""
    return sorted(ProtoReflectionDescriptorDatabase(channel).get_services())


def methods() -> Iterator[tuple[str, str, bool]]:
    """Yield service, method, and whether it is a stream, of our services, by the contract."""
    for file in (messaging.DESCRIPTOR, admin.DESCRIPTOR, streams.DESCRIPTOR, staging.DESCRIPTOR):
        for service in file.services_by_name.values():
            for method in service.methods:
                yield service.full_name, method.name, method.client_streaming


def call(channel: grpc.Channel, path: str, request: Message, metadata: Metadata, *, is_stream: bool) -> grpc.StatusCode:
    """Return how a call ends. An opened stream is cancelled."""
    try:
        if is_stream:
            stream: Any = channel.stream_stream(path, request_serializer=_bytes)
            opened = stream(iter([request]), metadata=metadata, timeout=20)
            next(opened, None)
            opened.cancel()
        else:
            method: Any = channel.unary_unary(path, request_serializer=_bytes)
            method(request, metadata=metadata, timeout=20)
    except grpc.RpcError as refused:
        code: grpc.StatusCode = refused.code()
        return code
    return grpc.StatusCode.OK


def _bytes(request: Any) -> bytes:
    serialised: bytes = request.SerializeToString()
    return serialised


def expected(method: Method, caller: Caller) -> grpc.StatusCode:
    if caller in _MEETS[method.needs]:
        return method.ends
    is_known = caller not in (Caller.NOBODY, Caller.WRONG_PASSWORD)
    return grpc.StatusCode.PERMISSION_DENIED if is_known else grpc.StatusCode.UNAUTHENTICATED


def table(rows: dict[str, list[grpc.StatusCode]]) -> str:
    width = max(map(len, rows)) + 2
    head = "method".ljust(width) + "".join(caller.value.ljust(20) for caller in Caller)
    lines = [name.ljust(width) + "".join(code.name.ljust(20) for code in codes) for name, codes in rows.items()]
    return "\n".join([head, *lines])
