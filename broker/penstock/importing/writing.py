"""Makes a data directory from a LavinMQ's.

It plans, then writes users, definitions and messages into a folder within a directory that is new or empty. Its files
are moved up when all are there, the names of the virtual hosts last: an import that is killed leaves the folder, by
which a broker does not start on the directory, and another import begins anew.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

from penstock.importing.lavinmq import FoundMessage, LavinDirectory, QueueFolder
from penstock.importing.plan import Plan, VhostPlan, make_plan
from penstock.importing.times import Delayed, delayed, expires_ms
from penstock.metadata.effects import PersistLimits, PersistPolicies, SettingsEntry
from penstock.model.errors import PreconditionFailedError, StorageError, Thing
from penstock.model.names import NAME_BYTES_MAX, ExchangeName, RoutingKey
from penstock.model.records import Queue, QueueKind
from penstock.routing import route
from penstock.storage import write_users
from penstock.storage.definitions_amqp import create_definitions
from penstock.storage.directory import directory_name
from penstock.storage.entries import change_of, record_of
from penstock.storage.filled import complete_data_directory, filled_data_directory
from penstock.storage.jsonfiles import sync_directory
from penstock.storage.limits_json import LIMITS, write_limits_file
from penstock.storage.log_writer import SHARD_COUNT, LogWriter, Times
from penstock.storage.new_directory import IMPORT
from penstock.storage.policies_json import OPERATOR_POLICIES, POLICIES, write_policies
from penstock.storage.user_records import records_of
from penstock.storage.vhost_files import DEFINITIONS, create_vhost_directory, shard_directory, unmark_deleted

Progress = Callable[[int, int], None]
"""Bytes read, and their total."""

FIRST_SEQUENCE: Final = 1
MESSAGES_A_STEP: Final = 4_096


@dataclass(slots=True)
class Imported:
    """Result of an import. `acked_count` are acknowledged messages that LavinMQ still had on its disk."""

    user_count: int = 0
    vhost_count: int = 0
    exchange_count: int = 0
    queue_count: int = 0
    binding_count: int = 0
    message_count: int = 0
    message_bytes: int = 0
    acked_count: int = 0
    left_out: list[str] = field(default_factory=list)


def import_lavinmq(
    source: Path, target: Path | None, *, is_partial: bool, on_progress: Progress, shard_count: int = 1
) -> Imported:
    """Import a directory; without a target read everything and write nothing. Each vhost gets so many shards.

    Raises StorageError and refusals; unless `is_partial`, also for anything that would be left out. Blocks.
    """
    with LavinDirectory.opened(source) as found:
        plan = make_plan(found, shard_count)
        reading = _Reading(plan, on_progress, is_lenient=is_partial or target is None)
        if target is None:
            reading.read_all()
            return reading.report
        if plan.left_out and not is_partial:
            raise PreconditionFailedError(
                Thing("directory", str(source)),
                f"holds {len(plan.left_out)} items that are not supported",
                "list them with --dry-run, or import without them with --partial",
            )
        with filled_data_directory(target, IMPORT) as folder:
            _write(plan, reading, folder)
        return reading.report


class _Reading:
    """Reads the imported messages, counts them and reports progress."""

    def __init__(self, plan: Plan, on_progress: Progress, *, is_lenient: bool) -> None:
        self.report = Imported(
            user_count=len(plan.users),
            vhost_count=len(plan.vhosts),
            exchange_count=sum(vhost.exchange_count for vhost in plan.vhosts),
            queue_count=sum(vhost.queue_count for vhost in plan.vhosts),
            binding_count=sum(vhost.binding_count for vhost in plan.vhosts),
            left_out=plan.left_out,
        )
        self._folders = [folder for vhost in plan.vhosts for folder in vhost.all_folders]
        self._bytes = sum(folder.bytes for folder in self._folders)
        self._bytes_read = 0
        self._on_progress = on_progress
        self._on_corruption = self._note_corruption if is_lenient else None
        self._is_lenient = is_lenient

    def messages(self, folder: QueueFolder, *, is_again: bool = False) -> Iterator[FoundMessage]:
        """Read a queue. Messages that are read again, for another shard, do not count again."""
        if is_again:
            for message in folder.messages(lambda _: None):
                yield replace(message, exchange=_as_text(message.exchange), routing_key=_as_text(message.routing_key))
            return
        read = renamed_count = 0
        for message in folder.messages(self._on_corruption):
            exchange, routing_key = _as_text(message.exchange), _as_text(message.routing_key)
            is_renamed = (exchange, routing_key) != (message.exchange, message.routing_key)
            if is_renamed and not self._is_lenient:
                raise PreconditionFailedError(
                    Thing("queue", folder.name),
                    "has a message whose exchange or routing key is not UTF-8",
                    "replace the invalid bytes with --partial",
                )
            renamed_count += is_renamed
            yield replace(message, exchange=exchange, routing_key=routing_key) if is_renamed else message
            self.report.message_count += 1
            self.report.message_bytes += len(message.body)
            read += len(message.body)
            if self.report.message_count % MESSAGES_A_STEP == 0:
                self._on_progress(self._bytes_read + read, self._bytes)
        if renamed_count:
            rule = "messages whose exchange or routing key is not UTF-8: U+FFFD in place of those bytes"
            self.report.left_out.append(f"queue '{folder.name}', {renamed_count} {rule}")
        self.report.acked_count += folder.acked_count
        self._bytes_read += folder.bytes
        self._on_progress(self._bytes_read, self._bytes)

    def read_all(self) -> None:
        for folder in self._folders:
            for _ in self.messages(folder):
                pass

    def _note_corruption(self, fault: StorageError) -> None:
        self.report.left_out.append(f"{fault.thing} {fault.rule}: what follows in it")


def _as_text(name: bytes) -> bytes:
    """Return a name as text: clients decode names as text and reject a whole response with one that is not."""
    try:
        name.decode()
    except UnicodeDecodeError:
        return name.decode(errors="replace").encode()[:NAME_BYTES_MAX].decode(errors="ignore").encode()
    return name


def _write(plan: Plan, reading: _Reading, folder: Path) -> None:
    for vhost in plan.vhosts:
        path = folder / directory_name(vhost.name)
        create_vhost_directory(path, vhost.name)
        changes = (entry for entry in vhost.entries if not isinstance(entry, SettingsEntry))
        create_definitions(path / DEFINITIONS, map(change_of, changes))
        _write_policies(vhost, path)
        _write_messages(vhost, reading, path)
        unmark_deleted(path)
        sync_directory(path)
    write_users(folder / "users.json", records_of(plan.users))
    complete_data_directory(folder, [vhost.name for vhost in plan.vhosts])


def _write_policies(vhost: VhostPlan, path: Path) -> None:
    """Write the policies. The last entry of each kind has all of them."""
    for entry in vhost.entries:
        if isinstance(entry, PersistPolicies):
            file = path / (OPERATOR_POLICIES if entry.is_operator else POLICIES)
            write_policies(file, vhost.name, [record_of(policy) for policy in entry.policies])
        elif isinstance(entry, PersistLimits):
            write_limits_file(path / LIMITS, entry.limits.written())


def _write_messages(vhost: VhostPlan, reading: _Reading, path: Path) -> None:
    """Write one log after the other, because each has a segment in memory."""
    for shard in range(vhost.shard_count):
        folder = shard_directory(path, shard)
        folder.mkdir(mode=0o750, parents=True, exist_ok=True)
        log = LogWriter(folder, shard=shard)
        if shard == 0 and vhost.shard_count > 1:
            log.put_mark(SHARD_COUNT, b"", vhost.shard_count.to_bytes(2, "little"))
        sequences = _Sequences(log)
        for queue, source in vhost.folders:
            if queue.shard == shard:
                for message in reading.messages(source):
                    sequences.append(queue, message)
        for source in vhost.delayed:
            _write_delayed(vhost, reading.messages(source, is_again=shard > 0), shard, sequences)
        log.close()
        if shard > 0:
            sync_directory(folder)
            sync_directory(folder.parent)


def _write_delayed(vhost: VhostPlan, messages: Iterator[FoundMessage], shard: int, sequences: "_Sequences") -> None:
    """Write delayed messages into those queues of a shard that they are routed to, as if they came now."""
    for found in map(delayed, messages):
        exchange, key = ExchangeName(found.message.exchange.decode()), RoutingKey(found.message.routing_key.decode())
        more = tuple(map(RoutingKey, found.more_keys))
        for name in route(vhost.topology, exchange, key, found.headers, more_keys=more):
            queue = vhost.topology.queues[name]
            if queue.shard == shard:
                sequences.append(queue, found.message, found)


class _Sequences:
    """Writes messages into the queues of a log; each priority is a queue of its own there."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._next: defaultdict[int, Iterator[int]] = defaultdict(lambda: count(FIRST_SEQUENCE))

    def append(self, queue: Queue, message: FoundMessage, late: Delayed | None = None) -> None:
        """Append a message. A stream has neither delays nor expirations."""
        lane = queue.id + min(message.priority, queue.max_priority)
        times = Times(message.stored_at_ms)
        if queue.kind is not QueueKind.STREAM:
            due = None if late is None else late.due_ms
            times = Times(message.stored_at_ms, expires_ms(message, due or message.stored_at_ms), due)
        self._log.append(
            (lane, next(self._next[lane])),
            times,
            (message.exchange, message.routing_key),
            message.properties,
            message.body,
        )
