"""A native shard whose storage errors are the house's faults, so that the rooms above catch one family only. It adds
nothing else, and anything but a storage error stays what it is: a bug."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from penstock.model.errors import DiskFullError, InvalidArgumentError, NotFoundError, StorageError, Thing
from penstock.native import Backup, Shard
from penstock.native import DiskFullError as NativeDiskFullError
from penstock.native import NotFoundError as NativeNotFoundError
from penstock.native import StorageError as NativeStorageError
from penstock.vhost.ports import (
    GroupState,
    LeaseOwnerState,
    NewQueue,
    NewRoute,
    ProducerState,
    QueueCounts,
    ReservedLease,
    StageState,
    StreamState,
)


class CarefulShard:
    """Implements `vhost.ports.Shard`."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard

    @property
    def highest_queue_id(self) -> int:
        return self._shard.highest_queue_id

    @property
    def fault(self) -> str | None:
        return self._shard.fault

    @property
    def is_stalled(self) -> bool:
        return self._shard.is_stalled

    def retain_queues(self, ids: Sequence[int]) -> int:
        with self._faults():
            return self._shard.retain_queues(ids)

    def put_queues(self, queues: Sequence[NewQueue]) -> None:
        with self._faults():
            self._shard.put_queues(queues)

    def dedicate_queue(self, queue_id: int, /) -> None:
        with self._faults():
            try:
                self._shard.dedicate_queue(queue_id)
            except NativeDiskFullError as error:
                rule = "finds no room on the disk for a queue's own log beside it"
                raise DiskFullError(
                    Thing("log", self._shard.name), rule, "consume messages or free space, and declare it again"
                ) from error

    def delete_queue(self, queue_id: int, /) -> int:
        with self._faults():
            return self._shard.delete_queue(queue_id)

    def purge_queue(self, queue_id: int, /) -> int:
        with self._faults():
            return self._shard.purge_queue(queue_id)

    def shut_empty_queue(self, queue_id: int, /) -> QueueCounts:
        with self._faults():
            return self._shard.shut_empty_queue(queue_id)

    def shut_queue(self, queue_id: int, /) -> None:
        with self._faults():
            self._shard.shut_queue(queue_id)

    def reopen_queue(self, queue_id: int, /) -> None:
        with self._faults():
            self._shard.reopen_queue(queue_id)

    def put_exchange(self, name: str, kind: str, alternate: str | None) -> None:
        with self._faults():
            self._shard.put_exchange(name, kind, alternate)

    def delete_exchange(self, name: str) -> None:
        with self._faults():
            self._shard.delete_exchange(name)

    def add_routes(self, routes: Sequence[NewRoute]) -> None:
        with self._faults():
            self._shard.add_routes(routes)

    def remove_route(self, exchange: str, key: str, match: bytes | None, to_exchange: bool, destination: str) -> None:
        with self._faults():
            self._shard.remove_route(exchange, key, match, to_exchange, destination)

    def queue_counts(self, ids: Sequence[int]) -> list[QueueCounts]:
        with self._faults():
            return self._shard.queue_counts(ids)

    def begin_backup(self) -> "CarefulBackup":
        with self._faults():
            return CarefulBackup(self._shard.begin_backup(), self._shard.name)

    def totals(self) -> tuple[int, int]:
        with self._faults():
            return self._shard.totals()

    def producers(self) -> list[ProducerState]:
        with self._faults():
            return self._shard.producers()

    def delete_producer(self, name: str, /) -> bool:
        with self._faults():
            return self._shard.delete_producer(name)

    def stage_states(self, ids: Sequence[int]) -> list[StageState]:
        with self._faults():
            return self._shard.stage_states(ids)

    def carry_on_staged(self) -> None:
        self._shard.carry_on_staged()

    def stream_states(self, ids: Sequence[int]) -> list[StreamState]:
        with self._faults(), self._absences():
            return self._shard.stream_states(ids)

    def stream_extents(self, ids: Sequence[int]) -> list[StreamState]:
        with self._faults():
            return self._shard.stream_extents(ids)

    def offset_at(self, queue_id: int, timestamp_ms: int, /) -> int:
        with self._faults(), self._absences():
            return self._shard.offset_at(queue_id, timestamp_ms)

    def trim_stream(self, queue_id: int, before: int, /) -> int:
        with self._faults(), self._absences():
            return self._shard.trim_stream(queue_id, before)

    def stream_groups(self, queue_id: int, /) -> list[GroupState]:
        with self._faults(), self._absences():
            return self._shard.stream_groups(queue_id)

    def store_offset(self, queue_id: int, group: str, offset: int, /) -> None:
        with self._faults(), self._absences():
            try:
                self._shard.store_offset(queue_id, group, offset)
            except ValueError as error:
                thing = Thing("group", group, self._shard.name)
                raise InvalidArgumentError(thing, f"cannot store an offset: {error}", "use another group") from error

    def delete_group(self, queue_id: int, group: str, /) -> bool:
        with self._faults(), self._absences():
            return self._shard.delete_group(queue_id, group)

    def reserve_lease(
        self, queue_id: int, owner: str, lease: int, messages_max: int, bytes_max: int, /
    ) -> ReservedLease:
        with self._faults(), self._lease_refusals(owner):
            return self._shard.reserve_lease(queue_id, owner, lease, messages_max, bytes_max)

    def ack_leases(self, queue_id: int, owner: str, up_to: int, /) -> int:
        with self._faults(), self._lease_refusals(owner):
            return self._shard.ack_leases(queue_id, owner, up_to)

    def release_leases(self, queue_id: int, owner: str, first: int, /) -> int:
        with self._faults(), self._lease_refusals(owner):
            return self._shard.release_leases(queue_id, owner, first)

    def leases(self, queue_id: int, /) -> list[LeaseOwnerState]:
        with self._faults(), self._lease_refusals(""):
            return self._shard.leases(queue_id)

    def producer_sequence(self, name: str, /) -> int | None:
        with self._faults():
            return self._shard.producer_sequence(name)

    def close(self, *, delete: bool) -> None:
        with self._faults():
            self._shard.close(delete=delete)

    def _faults(self) -> AbstractContextManager[None]:
        return _faults(self._shard.name, "mend the disk, then restart the broker")

    @contextmanager
    def _lease_refusals(self, owner: str) -> Iterator[None]:
        """What a lease can be refused for, and a queue that goes while a thread asks for it."""
        try:
            yield
        except ValueError as error:
            thing = Thing("owner of leases", owner, self._shard.name)
            raise InvalidArgumentError(thing, f"cannot do this: {error}", "see `penstock queue leases`") from error
        except NativeNotFoundError as error:
            raise NotFoundError(Thing("queue", str(error), self._shard.name)) from error

    @contextmanager
    def _absences(self) -> Iterator[None]:
        """A stream can go while a thread asks for it."""
        try:
            yield
        except NativeNotFoundError as error:
            raise NotFoundError(Thing("stream", str(error), self._shard.name)) from error


class CarefulBackup:
    """Implements `vhost.ports.LogBackup`."""

    def __init__(self, backup: Backup, name: str) -> None:
        self._backup = backup
        self._name = name

    @property
    def position(self) -> int:
        return self._backup.position

    def write(self, directory: str) -> None:
        try:
            self._backup.write(directory)
        except NativeStorageError as error:
            raise StorageError(
                Thing("backup", directory),
                f"of virtual host '{self._name}' failed: {error}",
                "free space there or repair that disk, and try again; the broker goes on",
            ) from error

    def close(self) -> None:
        self._backup.close()


@contextmanager
def _faults(name: str, way_out: str) -> Iterator[None]:
    try:
        yield
    except NativeStorageError as error:
        raise StorageError(Thing("log", name), f"failed: {error}", way_out) from error
