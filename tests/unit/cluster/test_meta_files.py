"""Files of the metadata through kills and failures of power at their steps: a start goes on to the same files.

The log is on other disks, too, so a start finds every committed record there.
"""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from penstock.cluster.meta.changes import Record
from penstock.cluster.meta.checkpoint import checkpoint_of, state_of
from penstock.cluster.meta.commands import (
    CreateVhost,
    DeleteUser,
    DeleteVhost,
    InVhost,
    JoinBroker,
    MetaCommand,
    PutUser,
    Request,
    SetPermission,
    SetUserLimits,
)
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.files import MetaFiles
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.metadata.commands import (
    Bind,
    DeclareExchange,
    DeclareQueue,
    DeleteQueue,
    SetDefaultQueueType,
    SetLimits,
    SetPolicy,
)
from penstock.metadata.policies import Policy
from penstock.model.errors import StorageError
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.storage import DataDirectory
from penstock.storage.records_json import PermissionRecord
from support.meta_commands import DIGEST
from support.power import Power, restore
from support.single_broker import files_of_a_single_broker, metadata_files

pytestmark = pytest.mark.slow
BLUE, GREEN = VhostName("blue"), VhostName("green")
SESSION = 1
Records = Sequence[tuple[int, Record]]


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor: None)


def declare(vhost: VhostName, name: str, *, exclusive: bool = False) -> MetaCommand:
    return InVhost(vhost, DeclareQueue(QueueName(name), ConnectionId(1), not exclusive, exclusive))


COMMANDS: list[MetaCommand] = [
    CreateVhost(BLUE),
    declare(BLUE, "kept"),
    declare(BLUE, "own", exclusive=True),
    PutUser("root", ("administrator",), DIGEST, "argon2id"),
    PutUser("ann", (), DIGEST, "argon2id"),
    SetPermission("ann", BLUE, PermissionRecord(".*", "a", "")),
    CreateVhost(GREEN, 2),
    InVhost(GREEN, DeclareExchange(ExchangeName("x"))),
    declare(GREEN, "gone"),
    InVhost(GREEN, Bind(Binding(ExchangeName("x"), DestinationKind.QUEUE, QueueName("gone")), ConnectionId(1))),
    InVhost(GREEN, DeleteQueue(QueueName("gone"), ConnectionId(1))),
    SetPermission("ann", GREEN, PermissionRecord("", "", "")),
    InVhost(BLUE, SetPolicy(Policy("p", "^k", {"message-ttl": 5, "expires": 9}))),
    InVhost(BLUE, SetLimits(Limits(queues_max=9))),
    InVhost(BLUE, SetDefaultQueueType("quorum")),
    declare(BLUE, "quorum"),
    SetUserLimits("ann", Limits(connections_max=2)),
    DeleteVhost(GREEN),
    CreateVhost(GREEN),
    declare(GREEN, "again"),
    DeleteUser("ann"),
]


def decided(commands: Sequence[MetaCommand] = COMMANDS) -> Records:
    """Return the records of commands."""
    state = MetaState()
    records: list[tuple[int, Record]] = []
    for number, command in enumerate([JoinBroker(BrokerName("mq-0"), 1, None), *commands]):
        record = decide(PendingState(state), Request(SESSION if number else 0, number, number, command))
        assert isinstance(record, Record)
        position = 10 + 10 * number
        records.append((position, record))
        state.apply(record, position)
    return records


async def live(root: Path, records: Records, sizes: Sequence[int], checkpoint_records: int = 4) -> MetaState:
    """Start, apply the records that are missing in batches of some sizes, and stop."""
    with DataDirectory.open(root) as directory:
        files, state = await MetaFiles.open(directory, checkpoint_records)
        rest, turn = [each for each in records if each[0] > state.position], 0
        while rest:
            size = sizes[turn % len(sizes)]
            await files.apply(state, rest[:size])
            rest, turn = rest[size:], turn + 1
        await files.close()
    return state


def wanted(tmp_path: Path) -> dict[str, bytes]:
    commands = [(command, SESSION) for command in COMMANDS]
    return asyncio.run(files_of_a_single_broker(tmp_path / "single", commands))


@pytest.mark.parametrize("sizes", [[1], [3, 2], [100]])
def test_a_start_at_any_step_goes_on_to_the_files_of_one_broker(tmp_path: Path, sizes: list[int]) -> None:
    records, files = decided(), wanted(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    power = Power(root, lambda: None)
    with power.recorded():
        whole = checkpoint_of(asyncio.run(live(root, records, sizes)))
    assert metadata_files(root) == files

    assert len(power.pictures) > 100
    # Each of the sizes begins at another picture.
    for number, picture in enumerate(power.pictures[sizes[0] % 7 :: 7]):
        again = tmp_path / str(number)
        restore(picture.tree, again)
        state = asyncio.run(live(again, records, [2]))
        state.check_invariants()
        assert checkpoint_of(state) == whole
        assert metadata_files(again) == files, number


def test_a_start_that_is_interrupted_goes_on_as_well(tmp_path: Path) -> None:
    records, files = decided(), wanted(tmp_path)
    root = tmp_path / "data"
    root.mkdir()
    power = Power(root, lambda: None)
    with power.recorded():
        asyncio.run(live(root, records, [3]))

    for number, picture in enumerate(power.pictures[:: len(power.pictures) // 5]):
        again = tmp_path / str(number)
        restore(picture.tree, again)
        second = Power(again, lambda: None)
        with second.recorded():
            asyncio.run(live(again, records, [100]))
        for step, interrupted in enumerate(second.pictures[::20]):
            third = tmp_path / f"{number}-{step}"
            restore(interrupted.tree, third)
            asyncio.run(live(third, records, [1]))
            assert metadata_files(third) == files, (number, step)


def test_a_directory_that_was_moved_away_is_made_anew_at_any_step(tmp_path: Path) -> None:
    """An operator moves it away when its log is corrupt. The broker refused to start without its definitions."""
    records, files = decided(), wanted(tmp_path)
    root = tmp_path / "data"
    asyncio.run(live(root, records, [2]))
    with DataDirectory.open(root) as directory:
        moved = directory.vhost_directory(BLUE)
    moved.rename(tmp_path / "moved")
    power = Power(root, lambda: None)
    with power.recorded():
        asyncio.run(live(root, records, [2]))
    assert metadata_files(root) == files

    assert len(power.pictures) > 5
    for number, picture in enumerate(power.pictures):
        again = tmp_path / str(number)
        restore(picture.tree, again)
        asyncio.run(live(again, records, [2]))
        assert metadata_files(again) == files, number


def test_another_broker_starts_from_a_checkpoint(tmp_path: Path) -> None:
    records = decided()
    for count in range(len(records) + 1):
        state = asyncio.run(live(tmp_path / f"{count}", records[:count], [1]))
        copied = state_of(checkpoint_of(state))
        copied.check_invariants()
        assert checkpoint_of(copied) == checkpoint_of(state)

        asyncio.run(install(tmp_path / f"{count}-copy", copied))
        whole = asyncio.run(live(tmp_path / f"{count}-copy", records, [1]))

        assert checkpoint_of(whole) == checkpoint_of(asyncio.run(live(tmp_path / f"{count}", records, [1])))


async def install(root: Path, state: MetaState) -> None:
    with DataDirectory.open(root) as directory:
        files, _ = await MetaFiles.open(directory)
        await files.install(state)
        await files.close()


def test_a_checkpoint_below_what_the_files_have_replaces_the_state_alone(tmp_path: Path) -> None:
    records = decided()
    whole = asyncio.run(live(tmp_path / "whole", records, [1], checkpoint_records=100))
    for count in range(1, len(records) + 1):
        root = tmp_path / f"{count}"
        asyncio.run(live(root, records, [1], checkpoint_records=100))
        files = metadata_files(root)
        state = MetaState()
        for position, record in records[:count]:
            state.apply(record, position)

        asyncio.run(go_on(root, state, records[count:]))

        assert checkpoint_of(state) == checkpoint_of(whole)
        assert metadata_files(root) == files


async def go_on(root: Path, state: MetaState, records: Records) -> None:
    with DataDirectory.open(root) as directory:
        files, _ = await MetaFiles.open(directory, 100)
        await files.install(state)
        assert files.checkpoint == state.position
        await files.apply(state, records)
        await files.close()


@pytest.mark.parametrize("count", [0, 9])
def test_an_installation_that_is_interrupted_is_completed(count: int, tmp_path: Path) -> None:
    records = decided()
    state = MetaState()
    for position, record in records:
        state.apply(record, position)
    root = tmp_path / "data"
    asyncio.run(live(root, records[:count], [1]))
    power = Power(root, lambda: None)
    with power.recorded():
        asyncio.run(install(root, state_of(checkpoint_of(state))))
    files = metadata_files(root)

    # A start completes the installation, or finds nothing of it.
    for number, picture in enumerate(power.pictures[:: 1 if count else 2]):
        again = tmp_path / str(number)
        restore(picture.tree, again)
        asyncio.run(install(again, state_of(checkpoint_of(state))))
        assert metadata_files(again) == files, number


def test_a_creation_that_is_interrupted_leaves_nothing_when_the_virtual_host_is_gone_by_then(tmp_path: Path) -> None:
    records = decided([CreateVhost(BLUE), DeleteVhost(BLUE)])
    state = asyncio.run(live(tmp_path / "whole", records, [1]))
    root = tmp_path / "data"
    root.mkdir()
    power = Power(root, lambda: None)
    with power.recorded():
        asyncio.run(live(root, records[:-1], [1]))

    for number, picture in enumerate(power.pictures):
        again = tmp_path / str(number)
        restore(picture.tree, again)
        # The record is replayed, or about to be, when the checkpoint of another broker comes.
        asyncio.run(live(again, records[:1], [1]))
        asyncio.run(install(again, state_of(checkpoint_of(state))))
        assert metadata_files(again) == metadata_files(tmp_path / "whole"), number


def test_files_of_a_broker_without_a_cluster_are_not_replaced(tmp_path: Path) -> None:
    asyncio.run(files_of_a_single_broker(tmp_path, [(CreateVhost(BLUE), SESSION)]))
    before = metadata_files(tmp_path)

    with pytest.raises(StorageError, match=r"users.json' exists, and meta.json"):
        asyncio.run(live(tmp_path, [], [1]))
    assert metadata_files(tmp_path) == before


def test_a_log_that_lacks_what_the_files_have_is_refused(tmp_path: Path) -> None:
    records = decided()
    asyncio.run(live(tmp_path, records[:5], [1], checkpoint_records=100))

    with pytest.raises(StorageError, match="lacks the record at"):
        asyncio.run(live(tmp_path, [*records[:3], *records[6:]], [1], checkpoint_records=100))
