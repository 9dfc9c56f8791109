"""The parts of a broker in a cluster that differ from those of a broker by itself, and the order of their start.

A broker joins before it has clients, so that its state is as new as that of the others. The logs of virtual hosts are
open before `node.json` tells of this boot, because a later start checks them for what a lost page cache had.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from penstock.cluster.host import ReplicaOptions
from penstock.identity import hash_password
from penstock.identity.passwords import ARGON2ID, SALT_BYTES
from penstock.kit.tasks import spawn
from penstock.native import Engine, Server
from penstock.node.config import Settings, StartError
from penstock.node.first_user import is_beyond_loopback
from penstock.node.in_cluster.accounts import ClusterAccounts, ClusterLimits
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.comparisons import Comparisons
from penstock.node.in_cluster.leader_counts import LeaderCounts
from penstock.node.in_cluster.leader_reports import LeaderReports
from penstock.node.in_cluster.log_copies import LogCopies
from penstock.node.in_cluster.membership import SECONDS_OF_HOUR, FirstAccount, Membership
from penstock.node.in_cluster.metadata import Metadata
from penstock.node.in_cluster.metadata_backup import MetadataBackups
from penstock.node.in_cluster.shard_replica import ReplicaSurroundings
from penstock.node.in_cluster.shards import ClusterShards, shard_names
from penstock.node.in_cluster.vhosts import ClusterVhosts, Surroundings
from penstock.node.password_file import read_password
from penstock.services.events import Events
from penstock.storage import DataDirectory
from penstock.storage.vhost_files import SHARDS

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stopping:
    """How a broker stops: `asked` is set when it was told to, and `end` has it stop by itself, as one that failed."""

    asked: asyncio.Event
    end: Callable[[], None]


@dataclass(frozen=True, slots=True)
class ClusterParts:
    membership: Membership
    metadata: Metadata
    accounts: ClusterAccounts
    limits: ClusterLimits
    vhosts: ClusterVhosts
    shards: ClusterShards
    events: Events
    backups: MetadataBackups
    comparisons: Comparisons

    def relay_clients(self, server: Server) -> None:
        """Relay clients to the brokers that lead, and serve the clients that others relay."""
        self.metadata.origin_of = server.origin_of
        self.membership.host.relay_clients(server)


async def open_cluster(
    settings: Settings,
    directory: DataDirectory,
    engine: Engine,
    make_token: Callable[[], str],
    undo: AsyncExitStack,
    stopping: Stopping,
) -> ClusterParts:
    """Join the cluster and open the virtual hosts that it has.

    Raises StartError, also when a stop is asked for meanwhile, StorageError and RefusedError.
    """
    _check_first_account(settings)
    events = Events()
    undo.push_async_callback(asyncio.to_thread, sync_logs, directory)
    membership = await asyncio.to_thread(Membership, settings, directory, stopping.end)
    undo.push_async_callback(membership.close)
    metadata = await _unless_asked(stopping.asked, membership.join())
    await _unless_asked(stopping.asked, membership.found(partial(first_account, settings)))
    options = ReplicaOptions(
        segment_bytes_min=settings.segment_bytes_min,
        segment_bytes_max=settings.segment_bytes_max,
        page_cache_lost=directory.may_have_lost_page_cache,
        disk_free_bytes_min=settings.disk_free_bytes_min,
    )
    host, member = membership.host, membership.member
    reports = LeaderReports(host, member)
    replicas = ReplicaSurroundings(host, engine, options, LogCopies(host, member), reports.ask)
    vhosts = ClusterVhosts(Surroundings(host, replicas, directory, metadata, events, make_token))
    counts = LeaderCounts(member, vhosts.owner_of)
    metadata.counts_of, metadata.totals_of = counts.ask, counts.ask_totals
    undo.push_async_callback(vhosts.close)
    member.before_deletion(vhosts.leave)
    member.before_served(vhosts.applied)
    view = ClusterView(settings.cluster, host, member, metadata, membership.is_alive, directory.vhost_directory)
    comparisons = Comparisons(
        host, member, lambda: shard_names(metadata.state), settings.cluster_scrub_hours * SECONDS_OF_HOUR
    )
    shards = ClusterShards(view, reports, comparisons.differences)
    await _unless_asked(stopping.asked, vhosts.begin())
    undo.callback(spawn(shards.draining.run(), name="draining").cancel)
    undo.callback(spawn(comparisons.run(), name="comparisons of replicas").cancel)
    await asyncio.to_thread(directory.begin, vhosts.names())
    accounts = ClusterAccounts(metadata)
    undo.callback(accounts.close)
    backups = MetadataBackups(view, lambda: vhosts.kept_below, lambda: vhosts.kept_shards)
    limits = ClusterLimits(metadata)
    return ClusterParts(membership, metadata, accounts, limits, vhosts, shards, events, backups, comparisons)


def first_account(settings: Settings) -> FirstAccount:
    """Return the first user of a new cluster, as the settings have it. Blocks. Raises StartError."""
    file = settings.default_password_file
    password = settings.default_password.get_secret_value() if file is None else read_password(file)
    return FirstAccount(settings.default_user, hash_password(password, os.urandom(SALT_BYTES)), ARGON2ID)


def sync_logs(directory: DataDirectory) -> None:
    """Sync the segments of all logs, so that a stop leaves nothing to a page cache. Blocks.

    Virtual hosts that were created in this run have logs, too.
    """
    for path in (*directory.path.glob("*/msgs.*"), *directory.path.glob(f"*/{SHARDS}/*/msgs.*")):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:  # its virtual host was deleted
            continue
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


async def _unless_asked(stop_asked: asyncio.Event, step: Awaitable[T]) -> T:
    """Wait for a step of the start, which may need other brokers, unless a stop is asked for."""
    starting = asyncio.current_task()
    assert starting is not None

    async def give_up() -> None:
        await stop_asked.wait()
        starting.cancel()

    giving_up = spawn(give_up(), name="stop before the cluster is joined")
    try:
        return await step
    except asyncio.CancelledError as cancelled:
        if not stop_asked.is_set():
            raise
        starting.uncancel()
        raise StartError("the broker was stopped before it had joined its cluster") from cancelled
    finally:
        giving_up.cancel()


def _check_first_account(settings: Settings) -> None:
    is_public = settings.default_user == "guest" and settings.default_password.get_secret_value() == "guest"
    if settings.default_password_file is None and is_public and is_beyond_loopback(settings):
        way_out = "set default_user and default_password, or default_password_file, the same on each broker"
        raise StartError(
            f"clients of other machines reach this broker, and its first user's password is public; {way_out}"
        )
