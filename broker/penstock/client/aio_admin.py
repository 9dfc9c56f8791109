"""Administration, as `connection.admin` offers it. The form for threads is generated."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import suppress
from hashlib import sha256

from penstock.client import (
    admin_calls,
    cluster_calls,
    lease_calls,
    limit_calls,
    policy_calls,
    staging,
    stream_calls,
)
from penstock.client.cluster_records import ClusterStatus, MovedLeader, PlacedReplicas, RecoveredShard
from penstock.client.errors import PenstockError
from penstock.client.records import (
    BackupPart,
    BegunBackup,
    Binding,
    Consumer,
    Exchange,
    ImportedDefinitions,
    OpenConnection,
    Permission,
    Policy,
    Producer,
    Queue,
    QueueLeases,
    Status,
    StreamInfo,
    TopicPermission,
    User,
    UserLimits,
    Vhost,
    VhostLimits,
)
from penstock.client.staging import StageInfo
from penstock.client.steps import AsyncRun
from penstock.client.values import Value

__all__ = ["AsyncAdmin"]


class AsyncAdmin:
    """Verbs of administration. Where a verb takes no vhost, it means that of the connection."""

    def __init__(self, run: AsyncRun, vhost: str) -> None:
        self._run = run
        self._vhost = vhost

    # ------------------------------------------------------------ what a vhost holds

    async def list_queues(self) -> list[Queue]:
        """Return the queues, streams' partitions included."""
        return await self._run(admin_calls.list_queues(self._vhost))

    async def get_queue(self, name: str) -> Queue:
        """Return a queue; raise NotFoundError if there is none of this name."""
        return await self._run(admin_calls.get_queue(self._vhost, name))

    async def list_leases(self, queue: str, owner: str | None = None) -> QueueLeases:
        """Return who has reserved which messages of a queue; with `owner`, of that owner alone."""
        return await self._run(lease_calls.list_leases(self._vhost, queue, owner))

    async def list_exchanges(self) -> list[Exchange]:
        """Return the exchanges."""
        return await self._run(admin_calls.list_exchanges(self._vhost))

    async def list_bindings(self, source: str | None = None, destination: str | None = None) -> list[Binding]:
        """Return the bindings; with `source` or `destination`, only those of that exchange or queue."""
        return await self._run(admin_calls.list_bindings(self._vhost, source, destination))

    async def list_streams(self) -> list[StreamInfo]:
        """Return the streams."""
        return await self._run(stream_calls.list_streams(self._vhost))

    async def get_stream(self, name: str) -> StreamInfo:
        """Return a stream; raise NotFoundError if there is none of this name."""
        return await self._run(stream_calls.get_stream(self._vhost, name))

    async def list_stages(self) -> list[StageInfo]:
        """Return the stages of staged publishing."""
        return await self._run(staging.list_stages(self._vhost))

    async def delete_stage(self, name: str, *, ended: bool = False) -> int:
        """Delete a stage and its record of published batches; return the number of rows that were in it.

        With `ended` its job is over: for an hour this user cannot open a stage of this name, also if there is none now.
        """
        return await self._run(staging.delete_stage(self._vhost, name, ended=ended))

    async def list_producers(self) -> list[Producer]:
        """Return the names of deduplicating publishers, sorted."""
        return await self._run(stream_calls.list_producers(self._vhost))

    async def delete_producer(self, name: str) -> bool:
        """Forget a deduplicating publisher; return whether the name was known.

        After that, messages that the publisher repeats are stored again.
        """
        return await self._run(stream_calls.delete_producer(self._vhost, name))

    async def list_consumers(self) -> list[Consumer]:
        """Return the consumers: all for administrators and monitoring, else the user's own."""
        return await self._run(admin_calls.list_consumers(self._vhost))

    # ------------------------------------------------------------ connections

    async def list_connections(self) -> list[OpenConnection]:
        """Return the connections to the broker: all for administrators and monitoring, else the user's own."""
        return await self._run(admin_calls.list_connections())

    async def close_connection(self, number: int) -> None:
        """Close a connection; raise NotFoundError if it does not exist. Most clients connect again by themselves."""
        await self._run(admin_calls.close_connection(number))

    # ------------------------------------------------------------ vhosts and limits

    async def list_vhosts(self) -> list[Vhost]:
        """Return the vhosts that the user may see."""
        return await self._run(admin_calls.list_vhosts())

    async def create_vhost(self, name: str, shards: int = 1, default_queue_type: str | None = None) -> bool:
        """Create a vhost, if there is none of this name; return whether it is new.

        Its queues are spread over so many shards, which are logs with a lock and syncs of their own. The default type
        of its queues is also set for one that exists, if you name one.
        """
        return await self._run(admin_calls.create_vhost(name, shards, default_queue_type))

    async def set_default_queue_type(self, name: str, default_queue_type: str) -> None:
        """Set the type of durable queues that are declared without one in a vhost: classic, quorum or stream."""
        await self._run(admin_calls.set_default_queue_type(name, default_queue_type))

    async def set_vhost_shards(self, name: str, shards: int) -> None:
        """Add shards to a vhost, until there are so many. Queues that exist stay where they are."""
        await self._run(admin_calls.set_vhost_shards(name, shards))

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost with everything in it."""
        await self._run(admin_calls.delete_vhost(name))

    async def get_vhost_limits(self, name: str | None = None) -> VhostLimits:
        """Return the limits of a vhost, and how much of them is used."""
        return await self._run(limit_calls.get_limits(self._vhost if name is None else name))

    async def set_vhost_limits(
        self,
        name: str | None = None,
        queues_max: int | None = None,
        connections_max: int | None = None,
        publish_rate: int | None = None,
        publish_bytes_rate: int | None = None,
        in_flight_bytes_max: int | None = None,
        message_bytes_max: int | None = None,
    ) -> None:
        """Set all limits of a vhost at once; None removes a limit. Queues and connections above a new limit stay."""
        limits = {
            "queues_max": queues_max,
            "connections_max": connections_max,
            "publish_rate": publish_rate,
            "publish_bytes_rate": publish_bytes_rate,
            "in_flight_bytes_max": in_flight_bytes_max,
            "message_bytes_max": message_bytes_max,
        }
        await self._run(limit_calls.set_limits(self._vhost if name is None else name, limits))

    async def get_user_limits(self, name: str = "") -> UserLimits:
        """Return the limits of a user, by default of the one who asks."""
        return await self._run(limit_calls.get_user_limits(name))

    async def set_user_limits(
        self,
        name: str,
        connections_max: int | None = None,
        streams_max: int | None = None,
        publish_rate: int | None = None,
        publish_bytes_rate: int | None = None,
        in_flight_bytes_max: int | None = None,
        message_bytes_max: int | None = None,
    ) -> None:
        """Set all limits of a user at once; None removes a limit."""
        limits = {
            "connections_max": connections_max,
            "streams_max": streams_max,
            "publish_rate": publish_rate,
            "publish_bytes_rate": publish_bytes_rate,
            "in_flight_bytes_max": in_flight_bytes_max,
            "message_bytes_max": message_bytes_max,
        }
        await self._run(limit_calls.set_user_limits(name, limits))

    # ------------------------------------------------------------ users and permissions

    async def list_users(self) -> list[User]:
        """Return the users and their tags."""
        return await self._run(admin_calls.list_users())

    async def put_user(
        self,
        name: str,
        password: str | None = None,
        tags: Iterable[str] | None = None,
        *,
        force: bool = False,
        random_password: bool = False,
    ) -> bool:
        """Add a user or change one; return whether the user is new. None keeps the password, or the tags.

        The last administrator stays one unless `force` is set: PreconditionFailedError. Set `random_password` only for
        a password with at least 192 random bits, such as `secrets.token_urlsafe(24)`: the broker then stores a digest
        that costs little to make and to check. Older brokers ignore it.
        """
        chosen = None if tags is None else tuple(tags)
        return await self._run(admin_calls.put_user(name, password, chosen, force, random_password))

    async def delete_user(self, name: str, *, force: bool = False) -> None:
        """Delete a user with their permissions.

        The last administrator is not deleted unless `force` is set: PreconditionFailedError.
        """
        await self._run(admin_calls.delete_user(name, force))

    async def list_permissions(self, user: str | None = None, vhost: str | None = None) -> list[Permission]:
        """Return the permissions; with `user` or `vhost`, only those of them."""
        return await self._run(admin_calls.list_permissions(user, vhost))

    async def set_permission(
        self, user: str, vhost: str | None = None, configure: str = "", write: str = "", read: str = ""
    ) -> None:
        """Set what a user may do in a vhost. Each pattern is a regular expression that must match a whole name."""
        chosen = self._vhost if vhost is None else vhost
        await self._run(admin_calls.set_permission(Permission(user, chosen, configure, write, read)))

    async def delete_permission(self, user: str, vhost: str | None = None) -> None:
        """Delete a user's permission in a vhost."""
        await self._run(admin_calls.delete_permission(user, self._vhost if vhost is None else vhost))

    async def list_topic_permissions(self, user: str | None = None, vhost: str | None = None) -> list[TopicPermission]:
        """Return the topic permissions; with `user` or `vhost`, only those of them."""
        return await self._run(admin_calls.list_topic_permissions(user, vhost))

    async def set_topic_permission(
        self, user: str, exchange: str, vhost: str | None = None, write: str = "", read: str = ""
    ) -> None:
        """Narrow what a user may do with a topic exchange.

        Each pattern is a regular expression that must match a whole routing key. `{username}` and `{vhost}` in it
        stand for those names.
        """
        chosen = self._vhost if vhost is None else vhost
        await self._run(admin_calls.set_topic_permission(TopicPermission(user, chosen, exchange, write, read)))

    async def delete_topic_permission(self, user: str, exchange: str | None = None, vhost: str | None = None) -> None:
        """Delete a user's topic permission on one exchange, or all in the vhost."""
        await self._run(admin_calls.delete_topic_permission(user, self._vhost if vhost is None else vhost, exchange))

    # ------------------------------------------------------------ policies

    async def list_policies(self, operator: bool = False) -> list[Policy]:
        """Return the policies, or with `operator` the operator policies."""
        return await self._run(policy_calls.list_policies(self._vhost, operator))

    async def set_policy(
        self,
        name: str,
        pattern: str,
        definition: Mapping[str, Value],
        apply_to: str = "all",
        priority: int = 0,
        operator: bool = False,
    ) -> None:
        """Set a policy; it is in force when this returns. An operator policy limits what others may set.

        `pattern` is a regular expression, matched anywhere in a name.
        """
        policy = Policy(name, pattern, apply_to, priority, definition)
        await self._run(policy_calls.set_policy(self._vhost, policy, operator))

    async def delete_policy(self, name: str, operator: bool = False) -> None:
        """Delete a policy, or with `operator` an operator policy."""
        await self._run(policy_calls.delete_policy(self._vhost, name, operator))

    # ------------------------------------------------------------ the cluster

    async def cluster_status(self) -> ClusterStatus:
        """Return the brokers and shards of the cluster, as the broker that answers sees them."""
        return await self._run(cluster_calls.cluster_status())

    async def move_leader(self, vhost: str, broker: str) -> MovedLeader:
        """Let a broker with a replica in sync lead a vhost; return when it does."""
        return await self._run(cluster_calls.move_leader(vhost, broker))

    async def move_replica(self, vhost: str, source: str = "", to: str = "") -> PlacedReplicas:
        """Have a replica move from one broker to another, or, without one of them, have one replica less or more.

        It returns before that is done. `cluster_status` shows when the brokers with a replica are those wanted.
        """
        return await self._run(cluster_calls.move_replica(vhost, source, to))

    async def add_broker(self, broker: str, peers: str) -> bool:
        """Let a broker join the cluster, which others reach at HOST:PORT; return whether it is new."""
        return await self._run(cluster_calls.add_broker(broker, peers))

    async def remove_broker(self, broker: str) -> None:
        """Forget a broker without replicas of vhosts; it stops then."""
        await self._run(cluster_calls.remove_broker(broker))

    async def set_draining(self, broker: str, draining: bool) -> bool:
        """Have a broker lead nothing as long as others can, or end that; return whether it changed."""
        return await self._run(cluster_calls.set_draining(broker, draining))

    async def recover_shard(
        self, vhost: str, broker: str, *, accept_loss: bool = False, number: int = 0
    ) -> RecoveredShard:
        """Let the replica of a broker lead although it may lack confirmed messages, as no replica in sync is left.

        Without `accept_loss` nothing changes, and the result says what is left of that shard of the vhost.
        """
        return await self._run(cluster_calls.recover_shard(vhost, broker, accept_loss, number))

    # ------------------------------------------------------------ the broker

    async def status(self) -> Status:
        """Return the broker's version, resource use and counts."""
        return await self._run(admin_calls.status())

    async def backup(self, directory: str) -> int:
        """Copy everything into an empty or new directory of the broker's machine; return the bytes written."""
        return await self._run(admin_calls.backup(directory))

    async def begin_backup(self, request_id: str = "") -> BegunBackup:
        """Fix a copy of everything, to be downloaded on this connection. Each part is waited for five minutes.

        The archive names `request_id`, by which a client that repeats a request recognizes its own file.
        """
        return await self._run(admin_calls.begin_backup(request_id))

    async def read_backup(self, backup: str, offset: int) -> BackupPart:
        """Return a part of a begun backup; `download_backup` reads all of them."""
        return await self._run(admin_calls.read_backup(backup, offset))

    async def end_backup(self, backup: str) -> None:
        """End a begun backup that is not wanted any more."""
        await self._run(admin_calls.end_backup(backup))

    async def download_backup(self, begun: BegunBackup) -> AsyncGenerator[bytes]:
        """Yield the archive of a begun backup, in parts of at most 1 MiB.

        The last part comes only when all that came before has the broker's length and SHA-256: raises ConnectionError
        otherwise, and PenstockError as other verbs do. Close the generator to end the backup early.
        """
        digest, offset = sha256(), 0
        try:
            while True:
                part = await self.read_backup(begun.id, offset)
                digest.update(part.content)
                offset += len(part.content)
                if part.is_last:
                    break
                yield part.content
        except PenstockError:
            raise  # the broker ended the backup, or does so when the connection ends
        except (KeyboardInterrupt, SystemExit):
            raise  # so does the process, which must not wait for a broker that may hang
        except BaseException:
            with suppress(PenstockError):
                await self.end_backup(begun.id)
            raise
        if (offset, digest.hexdigest()) != (begun.bytes, part.sha256):
            raise ConnectionError(f"backup is not whole: {offset} bytes arrived of {begun.bytes}, or other ones")
        yield part.content

    async def export_definitions(self, vhost: str | None = None) -> bytes:
        """Return the definitions as JSON: all of them, or those of one vhost."""
        return await self._run(admin_calls.export_definitions(vhost))

    async def import_definitions(
        self, document: bytes | str, vhost: str | None = None, *, skip_unsupported: bool = False, shards: int = 1
    ) -> ImportedDefinitions:
        """Add the definitions of a document; return how many of each kind were new.

        An item that the broker does not support refuses the whole document, unless `skip_unsupported` leaves it out.
        New virtual hosts for which the document has no number of shards get `shards`.
        """
        encoded = document.encode() if isinstance(document, str) else document
        return await self._run(admin_calls.import_definitions(encoded, vhost, skip_unsupported, shards))
