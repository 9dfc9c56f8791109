"""The calls about a cluster, without I/O: `steps` says how a connection drives them."""

from penstock.client.admin_calls import call
from penstock.client.cluster_records import (
    ClusterBroker,
    ClusterRecovery,
    ClusterReplica,
    ClusterShard,
    ClusterStatus,
    MovedLeader,
    PlacedReplicas,
    RecoveredShard,
    RemainingReplica,
)
from penstock.client.steps import Steps
from penstock.v1 import cluster_pb2

__all__ = [
    "add_broker",
    "cluster_status",
    "move_leader",
    "move_replica",
    "recover_shard",
    "remove_broker",
    "set_draining",
]


def cluster_status() -> Steps[ClusterStatus]:
    request, response = cluster_pb2.GetClusterStatusRequest(), cluster_pb2.GetClusterStatusResponse
    found = yield from call("GetClusterStatus", request, response)
    brokers = [
        ClusterBroker(each.name, each.alive, each.connected, each.draining, each.grpc, each.amqp, each.peers)
        for each in found.brokers
    ]
    shards = tuple(map(_shard, found.shards))
    return ClusterStatus(found.cluster, found.broker, tuple(brokers), shards, found.coordinator_fault)


def move_leader(vhost: str, broker: str) -> Steps[MovedLeader]:
    request = cluster_pb2.MoveLeaderRequest(vhost=vhost, broker=broker)
    found = yield from call("MoveLeader", request, cluster_pb2.MoveLeaderResponse)
    return MovedLeader(vhost, broker, found.shard, found.epoch, found.moved)


def move_replica(vhost: str, source: str, to: str) -> Steps[PlacedReplicas]:
    request = cluster_pb2.MoveReplicaRequest(vhost=vhost, source=source, to=to)
    found = yield from call("MoveReplica", request, cluster_pb2.MoveReplicaResponse)
    return PlacedReplicas(vhost, found.shard, tuple(found.placed), found.changed)


def add_broker(broker: str, peers: str) -> Steps[bool]:
    request = cluster_pb2.AddBrokerRequest(broker=broker, peers=peers)
    return (yield from call("AddBroker", request, cluster_pb2.AddBrokerResponse)).added


def remove_broker(broker: str) -> Steps[None]:
    request = cluster_pb2.RemoveBrokerRequest(broker=broker)
    yield from call("RemoveBroker", request, cluster_pb2.RemoveBrokerResponse)


def set_draining(broker: str, draining: bool) -> Steps[bool]:
    request = cluster_pb2.SetDrainingRequest(broker=broker, draining=draining)
    return (yield from call("SetDraining", request, cluster_pb2.SetDrainingResponse)).changed


def recover_shard(vhost: str, broker: str, accept_loss: bool, number: int) -> Steps[RecoveredShard]:
    request = cluster_pb2.RecoverShardRequest(vhost=vhost, broker=broker, accept_loss=accept_loss, number=number)
    found = yield from call("RecoverShard", request, cluster_pb2.RecoverShardResponse)
    outcome = (found.most, found.problem, found.recovered, found.epoch, number, max(1, found.shard_count))
    return RecoveredShard(vhost, broker, found.shard, tuple(map(_remaining, found.replicas)), *outcome)


def _remaining(each: cluster_pb2.RemainingReplica) -> RemainingReplica:
    return RemainingReplica(
        each.broker,
        answered=each.answered,
        alive=each.alive,
        id=each.id if each.HasField("id") else None,
        open=each.open,
        in_sync=each.in_sync,
        epoch=each.epoch,
        end_bytes=each.end_bytes,
        committed_bytes=each.committed_bytes,
        halted=each.halted,
    )


def _shard(shard: cluster_pb2.ClusterShard) -> ClusterShard:
    return ClusterShard(
        name=shard.name,
        vhost=shard.vhost if shard.HasField("vhost") else None,
        leader=shard.leader,
        epoch=shard.epoch,
        led=shard.led,
        min_in_sync=shard.min_in_sync,
        end_bytes=shard.end_bytes if shard.HasField("end_bytes") else None,
        replicas=tuple(
            ClusterReplica(
                *(each.broker, each.id, each.in_sync, each.lag_bytes if each.HasField("lag_bytes") else None),
                each.differing_records,
                each.differing_position,
            )
            for each in shard.replicas
        ),
        unknown=shard.unknown,
        recoveries=tuple(
            ClusterRecovery(each.at_unix_ms, each.by, each.broker, each.id, each.end_bytes, each.epoch)
            for each in shard.recoveries
        ),
        placed=tuple(shard.placed),
    )
