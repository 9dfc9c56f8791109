"""The table of unary methods: the message of each, and the handler that turns it into a verb.

A method that is not in the table does not exist; the handlers are in modules beside this, one a subject.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from penstock.frontends.grpc import (
    account_calls,
    client_calls,
    cluster_calls,
    lease_calls,
    limit_calls,
    node_calls,
    policy_calls,
    staging_calls,
    stream_calls,
    topology_calls,
    vhost_calls,
)
from penstock.frontends.grpc.errors import Refusal, unimplemented
from penstock.model.errors import InvalidArgumentError, Thing
from penstock.services import Principal, Services
from penstock.v1 import admin_pb2 as admin
from penstock.v1 import backup_pb2 as backup
from penstock.v1 import cluster_pb2 as cluster
from penstock.v1 import messaging_pb2 as messaging
from penstock.v1 import staging_pb2 as staging
from penstock.v1 import streams_pb2 as streams

_Request = TypeVar("_Request", bound=Message)
Handler = Callable[[Services, Principal, _Request], Awaitable[Message]]


@dataclass(frozen=True, slots=True)
class Method:
    """Any, because a table of handlers holds one type of request each."""

    request: type[Message]
    handler: Callable[[Services, Principal, Any], Awaitable[Message]]


def _method(request: type[_Request], handler: Handler[_Request]) -> Method:
    return Method(request, handler)


METHODS: dict[str, Method] = {
    "GetStatus": _method(admin.GetStatusRequest, node_calls.get_status),
    "ListConnections": _method(admin.ListConnectionsRequest, client_calls.list_connections),
    "CloseConnection": _method(admin.CloseConnectionRequest, client_calls.close_connection),
    "ListConsumers": _method(admin.ListConsumersRequest, client_calls.list_consumers),
    "ListVhosts": _method(admin.ListVhostsRequest, vhost_calls.list_vhosts),
    "CreateVhost": _method(admin.CreateVhostRequest, vhost_calls.create_vhost),
    "SetVhostShards": _method(admin.SetVhostShardsRequest, vhost_calls.set_vhost_shards),
    "SetDefaultQueueType": _method(admin.SetDefaultQueueTypeRequest, vhost_calls.set_default_queue_type),
    "DeleteVhost": _method(admin.DeleteVhostRequest, vhost_calls.delete_vhost),
    "GetVhostLimits": _method(admin.GetVhostLimitsRequest, vhost_calls.get_vhost_limits),
    "SetVhostLimits": _method(admin.SetVhostLimitsRequest, vhost_calls.set_vhost_limits),
    "GetUserLimits": _method(admin.GetUserLimitsRequest, limit_calls.get_user_limits),
    "SetUserLimits": _method(admin.SetUserLimitsRequest, limit_calls.set_user_limits),
    "ListUsers": _method(admin.ListUsersRequest, account_calls.list_users),
    "PutUser": _method(admin.PutUserRequest, account_calls.put_user),
    "DeleteUser": _method(admin.DeleteUserRequest, account_calls.delete_user),
    "RefreshToken": _method(admin.RefreshTokenRequest, account_calls.refresh_token),
    "ListPermissions": _method(admin.ListPermissionsRequest, account_calls.list_permissions),
    "SetPermission": _method(admin.SetPermissionRequest, account_calls.set_permission),
    "DeletePermission": _method(admin.DeletePermissionRequest, account_calls.delete_permission),
    "ListTopicPermissions": _method(admin.ListTopicPermissionsRequest, account_calls.list_topic_permissions),
    "SetTopicPermission": _method(admin.SetTopicPermissionRequest, account_calls.set_topic_permission),
    "DeleteTopicPermission": _method(admin.DeleteTopicPermissionRequest, account_calls.delete_topic_permission),
    "ListExchanges": _method(admin.ListExchangesRequest, topology_calls.list_exchanges),
    "DeclareExchange": _method(admin.DeclareExchangeRequest, topology_calls.declare_exchange),
    "DeleteExchange": _method(admin.DeleteExchangeRequest, topology_calls.delete_exchange),
    "ListQueues": _method(admin.ListQueuesRequest, topology_calls.list_queues),
    "DeclareQueue": _method(admin.DeclareQueueRequest, topology_calls.declare_queue),
    "DeleteQueue": _method(admin.DeleteQueueRequest, topology_calls.delete_queue),
    "PurgeQueue": _method(admin.PurgeQueueRequest, topology_calls.purge_queue),
    "ListBindings": _method(admin.ListBindingsRequest, topology_calls.list_bindings),
    "Bind": _method(admin.BindRequest, topology_calls.bind),
    "Unbind": _method(admin.UnbindRequest, topology_calls.unbind),
    "ListPolicies": _method(admin.ListPoliciesRequest, policy_calls.list_policies),
    "SetPolicy": _method(admin.SetPolicyRequest, policy_calls.set_policy),
    "DeletePolicy": _method(admin.DeletePolicyRequest, policy_calls.delete_policy),
    "ExportDefinitions": _method(admin.ExportDefinitionsRequest, vhost_calls.export_definitions),
    "ImportDefinitions": _method(admin.ImportDefinitionsRequest, vhost_calls.import_definitions),
    "Backup": _method(backup.BackupRequest, node_calls.backup),
    "BeginBackup": _method(backup.BeginBackupRequest, node_calls.begin_backup),
    "ReadBackup": _method(backup.ReadBackupRequest, node_calls.read_backup),
    "EndBackup": _method(backup.EndBackupRequest, node_calls.end_backup),
    "GetClusterStatus": _method(cluster.GetClusterStatusRequest, cluster_calls.get_cluster_status),
    "MoveLeader": _method(cluster.MoveLeaderRequest, cluster_calls.move_leader),
    "MoveReplica": _method(cluster.MoveReplicaRequest, cluster_calls.move_replica),
    "AddBroker": _method(cluster.AddBrokerRequest, cluster_calls.add_broker),
    "RemoveBroker": _method(cluster.RemoveBrokerRequest, cluster_calls.remove_broker),
    "SetDraining": _method(cluster.SetDrainingRequest, cluster_calls.set_draining),
    "RecoverShard": _method(cluster.RecoverShardRequest, cluster_calls.recover_shard),
    "ReserveLease": _method(messaging.ReserveLeaseRequest, lease_calls.reserve_lease),
    "AckLeases": _method(messaging.AckLeasesRequest, lease_calls.ack_leases),
    "ReleaseLeases": _method(messaging.ReleaseLeasesRequest, lease_calls.release_leases),
    "ListLeases": _method(messaging.ListLeasesRequest, lease_calls.list_leases),
    "ListStreams": _method(streams.ListStreamsRequest, stream_calls.list_streams),
    "DeclareStream": _method(streams.DeclareStreamRequest, stream_calls.declare_stream),
    "DeleteStream": _method(streams.DeleteStreamRequest, stream_calls.delete_stream),
    "GetOffsets": _method(streams.GetOffsetsRequest, stream_calls.get_offsets),
    "StoreOffset": _method(streams.StoreOffsetRequest, stream_calls.store_offset),
    "ListGroups": _method(streams.ListGroupsRequest, stream_calls.list_groups),
    "DeleteGroup": _method(streams.DeleteGroupRequest, stream_calls.delete_group),
    "TrimStream": _method(streams.TrimStreamRequest, stream_calls.trim_stream),
    "GetProducer": _method(streams.GetProducerRequest, stream_calls.get_producer),
    "ListProducers": _method(streams.ListProducersRequest, stream_calls.list_producers),
    "DeleteProducer": _method(streams.DeleteProducerRequest, stream_calls.delete_producer),
    "ListStages": _method(staging.ListStagesRequest, staging_calls.list_stages),
    "DeleteStage": _method(staging.DeleteStageRequest, staging_calls.delete_stage),
}


async def answer_call(services: Services, principal: Principal, name: str, payload: bytes) -> bytes | Refusal:
    """Return the serialised response.

    Refusals and faults are raised; for a method that does not exist a refusal is returned.
    """
    method = METHODS.get(name)
    if method is None:
        return unimplemented(name)
    response = await method.handler(services, principal, parsed(method.request, payload))
    return response.SerializeToString()


def parsed(kind: type[_Request], payload: bytes) -> _Request:
    """Return the message. Raises InvalidArgumentError."""
    try:
        return kind.FromString(payload)
    except DecodeError as error:
        raise InvalidArgumentError(
            Thing("message", kind.DESCRIPTOR.full_name), "cannot be parsed", "send a message of the contract"
        ) from error
