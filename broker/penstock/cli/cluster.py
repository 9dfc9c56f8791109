"""`penstock cluster`: the brokers of a cluster, and who leads which shard. Any broker of the cluster answers."""

import sys
from typing import TYPE_CHECKING

import typer

from penstock.cli.group import Commands
from penstock.cli.options import Uri, connected
from penstock.cli.output import Format, Output, print_json, print_rows

if TYPE_CHECKING:
    from penstock.cli.cluster_calls import ClusterShard

__all__ = ["app"]

app = Commands(help="Show and change who leads in a cluster.")
BROKER_COLUMNS = ("broker", "alive", "connected", "draining", "grpc", "amqp", "peers")
SHARD_COLUMNS = ("vhost", "leader", "epoch", "in_sync", "min_in_sync", "lag_bytes", "shard")
METADATA = "(metadata)"


@app.command()
def status(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """Show brokers, and leaders, replicas and lag of shards."""
    from penstock.cli.cluster_calls import cluster_status

    with connected(context, uri) as connection:
        found = cluster_status(connection)
    if output is Format.JSON:
        print_json(found)
        return
    brokers = [
        (each.name, each.alive, each.connected, each.draining, each.grpc, each.amqp, each.peers)
        for each in found.brokers
    ]
    print_rows(brokers, BROKER_COLUMNS, output)
    sys.stdout.write("\n")
    sys.stdout.flush()
    print_rows(map(_row, found.shards), SHARD_COLUMNS, output)


def _row(shard: "ClusterShard") -> tuple[object, ...]:
    """Return a shard as columns: of each replica how far it is behind, `-` where the leader does not say it."""
    vhost = METADATA if shard.vhost is None else shard.vhost
    leader = shard.leader if shard.led or not shard.leader else f"{shard.leader}?"
    in_sync = [replica.broker for replica in shard.replicas if replica.in_sync]
    lag = [f"{replica.broker}={'-' if replica.lag_bytes is None else replica.lag_bytes}" for replica in shard.replicas]
    return vhost, leader, str(shard.epoch), in_sync, shard.min_in_sync, lag, shard.name
