"""The cluster of the broker: requests to verbs."""

from penstock.frontends.native import vhost_of
from penstock.services import Principal, Services
from penstock.v1 import cluster_pb2 as cluster


async def get_cluster_status(
    services: Services, principal: Principal, _: cluster.GetClusterStatusRequest
) -> cluster.GetClusterStatusResponse:
    found = await services.cluster.get_cluster_status(principal)
    response = cluster.GetClusterStatusResponse(
        cluster=found.cluster, broker=found.broker, coordinator_fault=found.coordinator_fault
    )
    for broker in found.brokers:
        response.brokers.add(
            name=broker.name,
            peers=broker.peers,
            grpc=broker.grpc,
            amqp=broker.amqp,
            alive=broker.is_alive,
            connected=broker.is_connected,
            draining=broker.is_draining,
        )
    for shard in found.shards:
        added = response.shards.add(
            name=shard.name,
            vhost=shard.vhost,
            leader=shard.leader,
            epoch=shard.epoch,
            led=shard.is_led,
            min_in_sync=shard.min_in_sync,
            end_bytes=shard.end_bytes,
            unknown=shard.is_unknown,
            placed=shard.placed,
        )
        for replica in shard.replicas:
            added.replicas.add(
                broker=replica.broker,
                id=replica.id,
                in_sync=replica.is_in_sync,
                lag_bytes=replica.lag_bytes,
                differing_records=replica.differing_records,
                differing_position=replica.differing_position,
            )
        for each in shard.recoveries:
            added.recoveries.add(
                epoch=each.epoch,
                broker=each.broker,
                id=each.id,
                end_bytes=each.end_bytes,
                by=each.by,
                at_unix_ms=each.at_ms,
            )
    return response


async def move_leader(
    services: Services, principal: Principal, request: cluster.MoveLeaderRequest
) -> cluster.MoveLeaderResponse:
    moved = await services.cluster.move_leader(principal, vhost_of(request.vhost), request.broker)
    return cluster.MoveLeaderResponse(shard=moved.shard, epoch=moved.epoch, moved=moved.is_moved)


async def move_replica(
    services: Services, principal: Principal, request: cluster.MoveReplicaRequest
) -> cluster.MoveReplicaResponse:
    placed = await services.cluster.move_replica(principal, vhost_of(request.vhost), request.source, request.to)
    return cluster.MoveReplicaResponse(shard=placed.shard, placed=placed.brokers, changed=placed.is_changed)


async def add_broker(
    services: Services, principal: Principal, request: cluster.AddBrokerRequest
) -> cluster.AddBrokerResponse:
    return cluster.AddBrokerResponse(added=await services.cluster.add_broker(principal, request.broker, request.peers))


async def remove_broker(
    services: Services, principal: Principal, request: cluster.RemoveBrokerRequest
) -> cluster.RemoveBrokerResponse:
    await services.cluster.remove_broker(principal, request.broker)
    return cluster.RemoveBrokerResponse()


async def set_draining(
    services: Services, principal: Principal, request: cluster.SetDrainingRequest
) -> cluster.SetDrainingResponse:
    changed = await services.cluster.set_draining(principal, request.broker, request.draining)
    return cluster.SetDrainingResponse(changed=changed)


async def recover_shard(
    services: Services, principal: Principal, request: cluster.RecoverShardRequest
) -> cluster.RecoverShardResponse:
    vhost = vhost_of(request.vhost)
    found = await services.cluster.recover_shard(principal, vhost, request.number, request.broker, request.accept_loss)
    response = cluster.RecoverShardResponse(
        shard=found.shard,
        most=found.most,
        problem=found.problem,
        recovered=found.is_recovered,
        epoch=found.epoch,
        shard_count=found.shard_count,
    )
    for each in found.replicas:
        response.replicas.add(
            broker=each.broker,
            answered=each.has_answered,
            alive=each.is_alive,
            id=each.id,
            open=each.is_open,
            in_sync=each.is_in_sync,
            epoch=each.epoch,
            end_bytes=each.end_bytes,
            committed_bytes=each.committed_bytes,
            halted=each.halted,
        )
    return response
