"""`penstock cluster`: the brokers of a cluster, and who leads which shard. Any broker of the cluster answers."""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import penstock
from penstock.cli.cluster_moves import MOVE_COLUMNS, Placing, moves_of, wait_until_placed
from penstock.cli.group import Commands
from penstock.cli.options import Uri, VhostName, complete_vhosts, connected
from penstock.cli.output import Format, Output, counted, print_done, print_json, print_note, print_rows
from penstock.cli.recovering import outcome_of

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.cli.rebalancing import Move
    from penstock.client.cluster_records import ClusterShard, ClusterStatus, RecoveredShard, RemainingReplica

__all__ = ["app"]

app = Commands(help="Show and change who leads in a cluster.")
BROKER_COLUMNS = ("broker", "alive", "connected", "draining", "grpc", "amqp", "peers")
SHARD_COLUMNS = ("vhost", "leader", "epoch", "in_sync", "min_in_sync", "lag_bytes", "shard")
DIFFERENCE_COLUMNS = ("vhost", "replica", "differing_records", "first_position", "shard")
RECOVERY_COLUMNS = ("vhost", "recovered", "by", "broker", "end_bytes", "epoch")
REMAINING_COLUMNS = ("broker", "replica", "in_sync", "epoch", "end_bytes", "committed_bytes")
METADATA = "(metadata)"
DRAIN_SECONDS = 60.0
MOVE_SECONDS = 600.0
Timeout = Annotated[float, typer.Option("--timeout", min=0, help="Seconds to wait for a replica; 0 does not wait.")]
EachTimeout = Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for each replica.")]
LOOK_SECONDS = 0.2
RECOVERY_SECONDS = 60.0
NAMED_MAX = 5
"""Vhosts that an error names."""
LOST_MESSAGES = "messages that were confirmed and are not in that log are lost"
LOST_METADATA = (
    "users, vhosts, queues and bindings that were declared and are not in that log are lost, with the messages of "
    "those queues; what was deleted and is not deleted in that log is there again"
)
RecoveredName = Annotated[
    str | None,
    typer.Argument(metavar="[VHOST]", help="The vhost.", show_default=False, autocompletion=complete_vhosts),
]


@app.command()
def status(context: typer.Context, uri: Uri = None, output: Output = None) -> None:
    """Show brokers, and leaders, replicas and lag of shards."""
    with connected(context, uri) as connection:
        found = connection.admin.cluster_status()
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
    unknown_count = sum(shard.unknown for shard in found.shards)
    if unknown_count:
        unknown = counted(unknown_count, "shard")
        print_note(f"the coordinator did not answer for {unknown}: {found.coordinator_fault}")
    moves = [row for shard in found.shards for row in moves_of(shard)]
    if moves:
        sys.stdout.write("\n")
        sys.stdout.flush()
        print_rows(moves, MOVE_COLUMNS, output)
    differences = [row for shard in found.shards for row in _differences(shard)]
    if differences:
        sys.stdout.write("\n")
        sys.stdout.flush()
        print_rows(differences, DIFFERENCE_COLUMNS, output)
    recoveries = [row for shard in found.shards for row in _recoveries(shard)]
    if recoveries:
        sys.stdout.write("\n")
        sys.stdout.flush()
        print_rows(recoveries, RECOVERY_COLUMNS, output)


@app.command()
def move(
    context: typer.Context,
    name: VhostName,
    to: Annotated[str, typer.Option("--to", help="Broker that is to lead, or to get the replica.", metavar="BROKER")],
    replica: Annotated[
        str, typer.Option("--replica", help="Move the replica of this broker.", metavar="BROKER", show_default=False)
    ] = "",
    timeout: Timeout = MOVE_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Let another broker lead a vhost, or move a replica of it.

    The leader moves to a broker with a replica in sync. With --replica, the new broker copies the log, and the replica
    of the other one is deleted once the new one is in sync. That goes on when you interrupt the command.
    """
    if replica:
        _place(context, uri, output, Placing(name, replica, to, timeout))
        return
    with connected(context, uri) as connection:
        found = connection.admin.move_leader(name, to)
    done = f"broker '{to}' leads vhost '{name}' in epoch {found.epoch}"
    print_done(done if found.moved else f"{done}, as before", found, output)


@app.command()
def grow(
    context: typer.Context,
    name: VhostName,
    to: Annotated[str, typer.Option("--to", help="Broker that is to get a replica.", metavar="BROKER")],
    timeout: Timeout = MOVE_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Give a vhost one replica more.

    An even number of replicas survives no more losses than the odd number below it.
    """
    _place(context, uri, output, Placing(name, "", to, timeout))


@app.command()
def shrink(
    context: typer.Context,
    name: VhostName,
    broker: Annotated[str, typer.Option("--from", help="Broker whose replica is deleted.", metavar="BROKER")],
    timeout: Timeout = MOVE_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Delete a replica of a vhost, once all others are in sync."""
    _place(context, uri, output, Placing(name, broker, "", timeout))


def _place(context: typer.Context, uri: str | None, output: Format | None, placing: Placing) -> None:
    """Move, add or delete a replica, and wait until that is done."""
    with connected(context, uri) as connection:
        found = connection.admin.move_replica(placing.vhost, placing.source, placing.to)
        if placing.timeout:
            wait_until_placed(connection, found, placing.timeout)
    state = "has replicas on" if placing.timeout else "is to have replicas on"
    print_done(f"vhost '{placing.vhost}' {state} {', '.join(found.placed)}", found, output)


@app.command()
def recover(
    context: typer.Context,
    broker: Annotated[str, typer.Option("--from", help="Broker whose replica is to lead.", metavar="BROKER")],
    name: RecoveredName = None,
    metadata: Annotated[bool, typer.Option("--metadata", help="Recover users, vhosts and definitions.")] = False,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="Data directory of a broker here; for --metadata.", envvar="PENSTOCK_DATA_DIR"),
    ] = None,
    accept_loss: Annotated[bool, typer.Option("--accept-loss", help="Recover; messages may be lost.")] = False,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Recover a vhost or the metadata, with no replica in sync.

    Without --accept-loss it shows what is left and changes nothing. Before you add it, stop all brokers for good that
    do not answer. The metadata is recovered on the machine of any broker, by the user of its process or root.
    """
    if metadata:
        found, of = [_recovered_metadata(broker, data_dir, accept_loss, name)], "the metadata"
    elif name is None:
        raise typer.BadParameter("name a vhost, or use --metadata")
    else:
        from penstock.cli.recovering import recover_shards

        with connected(context, uri) as connection:
            found, of = recover_shards(connection, name, broker, accept_loss), f"vhost '{name}'"
    shown = found[0] if found[0].shard_count == 1 else found
    if accept_loss or any(each.recovered for each in found):
        print_done(f"{of} was recovered{outcome_of(found)}", shown, output)
        return
    if output is Format.JSON:
        print_json(shown)
        return
    rows = [(each.number, *_remaining(replica)) for each in found for replica in each.replicas]
    if len(found) == 1:
        print_rows((row[1:] for row in rows), REMAINING_COLUMNS, output)
    else:
        print_rows(rows, ("shard", *REMAINING_COLUMNS), output)
    sys.stdout.flush()
    _say_cost(of, broker, found, lost=LOST_METADATA if metadata else LOST_MESSAGES)


def _recovered_metadata(broker: str, data_dir: Path | None, accept_loss: bool, name: str | None) -> "RecoveredShard":
    """Ask the broker of a data directory, which serves no clients while there is no metadata."""
    from penstock.client.cluster_records import RecoveredShard, RemainingReplica

    if name is not None:
        raise typer.BadParameter("name a vhost or use --metadata, not both")
    if data_dir is None:
        raise typer.BadParameter("--metadata needs the --data-dir of a broker on this machine")
    request = {"verb": "recover-metadata", "broker": broker, "accept_loss": accept_loss}
    asking = import_module("penstock.node.operator_calls").ask_broker
    found = asking(data_dir.absolute(), request, RECOVERY_SECONDS)
    replicas = [
        RemainingReplica(
            broker=each["broker"],
            answered=each["has_answered"],
            alive=each["is_alive"],
            id=each["id"] or None,
            open=each["is_open"],
            in_sync=each["is_in_sync"],
            epoch=each["epoch"],
            end_bytes=each["end_bytes"],
            committed_bytes=each["committed_bytes"],
            halted=each["halted"],
        )
        for each in found["replicas"]
    ]
    return RecoveredShard(
        vhost="",
        broker=broker,
        shard=found["shard"],
        replicas=tuple(replicas),
        most=found["most"],
        problem=found["problem"],
        recovered=found["is_recovered"],
        epoch=found["epoch"],
    )


@app.command()
def drain(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(help="The broker.", show_default=False)],
    undo: Annotated[bool, typer.Option("--undo", help="Let the broker lead again.")] = False,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0, help="Seconds to wait; 0 does not wait.")
    ] = DRAIN_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Let other brokers lead all that a broker leads.

    It leads nothing until you undo that, also after a restart, as long as other brokers can lead.
    """
    with connected(context, uri) as connection:
        changed = connection.admin.set_draining(broker, not undo)
        if not undo and timeout:
            _wait_until_drained(connection, broker, timeout)
    state = "may lead again" if undo else "leads nothing" if timeout else "hands over what it leads"
    fields = {"broker": broker, "draining": not undo, "changed": changed}
    print_done(f"broker '{broker}' {state}", fields, output)


def _wait_until_drained(connection: "Connection", broker: str, seconds: float) -> None:
    """Return when another broker says of each shard that it leads it. Raise ValueError after a time."""
    deadline = time.monotonic() + seconds
    while left := [
        shard for shard in connection.admin.cluster_status().shards if not shard.led or shard.leader == broker
    ]:
        if not time.monotonic() < deadline:
            found = dict.fromkeys(METADATA if shard.vhost is None else f"vhost '{shard.vhost}'" for shard in left)
            names = ", ".join(list(found)[:NAMED_MAX])
            more = "" if len(found) <= NAMED_MAX else f" and {counted(len(found) - NAMED_MAX, 'other')}"
            raise ValueError(
                f"no other broker than '{broker}' leads {names}{more} yet; it hands over once a broker that is not "
                "drained has a replica in sync, as `penstock cluster status` shows"
            )
        time.sleep(LOOK_SECONDS)


@app.command()
def add(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(help="The broker.", show_default=False)],
    peers: Annotated[
        str, typer.Option("--peers", help="Where other brokers reach it: its cluster_peers.", metavar="HOST:PORT")
    ],
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Let a new broker join the cluster; start it after that.

    Its cluster_brokers has all brokers, itself among them. Then give it replicas with `grow` and `move --replica`.
    """
    with connected(context, uri) as connection:
        added = connection.admin.add_broker(broker, peers)
    done = f"broker '{broker}' may join the cluster"
    print_done(done if added else f"{done}, as before", {"broker": broker, "peers": peers, "added": added}, output)


@app.command()
def remove(
    context: typer.Context,
    broker: Annotated[str, typer.Argument(help="The broker.", show_default=False)],
    timeout: Timeout = MOVE_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Move all replicas of a broker away, and remove it.

    It leads nothing any more, its replicas move to the brokers with the fewest, and it stops. You may interrupt the
    command, and run it again. A broker that is lost is removed in the same way.
    """
    from penstock.cli.cluster_moves import leaving_moves, wait_until_empty

    with connected(context, uri) as connection:
        before = connection.admin.cluster_status()
        moves = leaving_moves(before, broker)
        connection.admin.set_draining(broker, True)
        for move in moves:
            connection.admin.move_replica(move.vhost, move.source, move.to)
        wait_until_empty(connection, broker, timeout)
        connection.admin.remove_broker(broker)
    fields = {"broker": broker, "moved": [{"vhost": move.vhost, "to": move.to} for move in moves]}
    print_done(f"broker '{broker}' was removed from the cluster", fields, output)


@app.command()
def rebalance(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the moves.")] = False,
    replicas: Annotated[bool, typer.Option("--replicas", help="Spread replicas, not leaders.")] = False,
    timeout: EachTimeout = MOVE_SECONDS,
    uri: Uri = None,
    output: Output = None,
) -> None:
    """Spread the leaders or replicas of vhosts over brokers.

    It moves one after the other, as `move` does, to brokers that are alive and not drained. You may interrupt it, and
    run it again.
    """
    if replicas:
        _spread_replicas(context, uri, output, None if dry_run else timeout)
        return
    with connected(context, uri) as connection:
        moves = _moves(connection.admin.cluster_status())
        failed = []
        for move in moves:
            text = f"vhost '{move.vhost}': '{move.broker}' -> '{move.to}'"
            print_done(text, move, output)
            sys.stdout.flush()
            if not dry_run and not _carry_out(connection, move):
                failed.append(move.vhost)
    if failed:
        names = ", ".join(f"'{vhost}'" for vhost in failed[:NAMED_MAX])
        raise ValueError(
            f"{counted(len(failed), 'vhost')} did not move: {names}; see `penstock cluster status`, and repeat"
        )
    if not moves and output is not Format.JSON:
        print_note("leaders are spread as evenly as replicas in sync allow")


def _spread_replicas(context: typer.Context, uri: str | None, output: Format | None, seconds: float | None) -> None:
    """Move replicas, one after the other, each within a time; without one only show the moves."""
    from penstock.cli.rebalancing import spread_replicas

    with connected(context, uri) as connection:
        found = connection.admin.cluster_status()
        placed = {shard.vhost: shard.placed for shard in found.shards if shard.vhost is not None}
        moves = spread_replicas(placed, {each.name for each in found.brokers if each.alive and not each.draining})
        for move in moves:
            print_done(f"vhost '{move.vhost}': '{move.broker}' -> '{move.to}'", move, output)
            sys.stdout.flush()
            if seconds is not None:
                asked = connection.admin.move_replica(move.vhost, move.broker, move.to)
                wait_until_placed(connection, asked, seconds)
    if not moves and output is not Format.JSON:
        print_note("replicas are spread evenly over the brokers that are alive and not drained")


def _moves(found: "ClusterStatus") -> "list[Move]":
    """Return the moves for a status. The metadata stays where it is, and so does a vhost whose leader is silent."""
    from penstock.cli.rebalancing import LedShard, rebalance

    led: dict[str, LedShard] = {}
    for vhost in dict.fromkeys(shard.vhost for shard in found.shards if shard.vhost is not None):
        shards = [shard for shard in found.shards if shard.vhost == vhost]
        if all(shard.led and shard.leader == shards[0].leader for shard in shards):
            able = ({each.broker for each in shard.replicas if each.in_sync} for shard in shards)
            led[vhost] = LedShard(shards[0].leader, frozenset(set.intersection(*able)))
    return rebalance(led, {each.name for each in found.brokers if each.alive and not each.draining})


def _carry_out(connection: "Connection", move: "Move") -> bool:
    """Return whether a leader has moved. One that cannot any more is said, and the others go on."""
    try:
        connection.admin.move_leader(move.vhost, move.to)
    except (penstock.PreconditionFailedError, penstock.NotFoundError, penstock.ConnectionLostError) as error:
        print_note(str(error))
        return False
    return True


def _say_cost(of: str, broker: str, found: "list[RecoveredShard]", lost: str) -> None:
    """Say what a recovery would lose. Nothing was changed. Raise ValueError where nothing is to be recovered."""
    problems = {each.number: f"{of} {each.problem}" for each in found if each.problem}
    if len(problems) == len(found):
        raise ValueError(problems[found[0].number])
    for number, problem in problems.items():
        print_note(f"shard {number} stays as it is: {problem}")
    for each in (each for each in found if not each.problem):
        chosen = next(replica for replica in each.replicas if replica.broker == broker)
        what = of if len(found) == 1 else f"shard {each.number} of {of}"
        end = f"position {chosen.end_bytes} of epoch {chosen.epoch}"
        print_note(f"no replica that answers has more of {what} than broker '{broker}', whose log ends at {end}")
    print_note(lost)
    print_note("nothing was changed; stop all brokers for good that do not answer, then add --accept-loss")


def _remaining(replica: "RemainingReplica") -> tuple[object, ...]:
    if replica.id is None:
        state = "none" if replica.answered else "no answer, alive" if replica.alive else "no answer"
        return replica.broker, state, "-", "-", "-", "-"
    if not replica.open:
        return replica.broker, "not open", replica.in_sync, "-", "-", "-"
    state = f"halted: {replica.halted}" if replica.halted else "open"
    return (replica.broker, state, replica.in_sync, str(replica.epoch), replica.end_bytes, replica.committed_bytes)


def _differences(shard: "ClusterShard") -> Iterator[tuple[object, ...]]:
    """Yield the replicas of a shard that differ from their leader as columns."""
    vhost = METADATA if shard.vhost is None else shard.vhost
    for each in shard.replicas:
        if each.differing_records:
            yield vhost, each.broker, each.differing_records, each.differing_position, shard.name


def _recoveries(shard: "ClusterShard") -> Iterator[tuple[object, ...]]:
    """Yield the recoveries of a shard as columns, with their times in UTC."""
    vhost = METADATA if shard.vhost is None else shard.vhost
    for each in shard.recoveries:
        at = datetime.fromtimestamp(each.at_unix_ms / 1000, UTC).isoformat(timespec="seconds")
        yield vhost, at.replace("+00:00", "Z"), each.by, each.broker, each.end_bytes, str(each.epoch)


def _row(shard: "ClusterShard") -> tuple[object, ...]:
    """Return a shard as columns: of each replica how far it is behind, `-` where the leader does not say it."""
    vhost = METADATA if shard.vhost is None else shard.vhost
    has_answered = shard.led or not (shard.leader or shard.unknown)
    leader = shard.leader if has_answered else f"{shard.leader}?"
    in_sync = [replica.broker for replica in shard.replicas if replica.in_sync]
    lag = [f"{replica.broker}={'-' if replica.lag_bytes is None else replica.lag_bytes}" for replica in shard.replicas]
    return vhost, leader, str(shard.epoch), in_sync, shard.min_in_sync, lag, shard.name
