"""A broker whose metadata a recovery has lost: it begins anew with the recovered one, whatever interrupts it."""

import asyncio
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.cluster.meta import anew, files
from penstock.cluster.meta.anew import ANEW, begin_anew, mark_anew
from penstock.cluster.meta.asking import Asker
from penstock.cluster.meta.changes import Record, VhostCreated
from penstock.cluster.meta.commands import CreateVhost, JoinBroker, MetaCommand, PutUser, Request
from penstock.cluster.meta.decide import decide
from penstock.cluster.meta.files import MetaFiles
from penstock.cluster.meta.pending import PendingState
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.model.names import VhostName
from penstock.native import prepare_replica
from penstock.storage import DataDirectory, directory_name, read_users, read_vhosts
from penstock.storage.cluster_json import META
from penstock.storage.directory import APPLIED
from penstock.storage.setting_aside import SET_ASIDE
from support.meta_cluster import MetaCluster, run_inline
from support.meta_commands import DIGEST
from support.meta_log import SharedLog

KEPT, LOST = VhostName("kept"), VhostName("lost")
Records = Sequence[tuple[int, Record]]


@pytest.fixture(autouse=True)
def without_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, lambda _descriptor: None)


def decided(*commands: MetaCommand) -> Records:
    """Return the records of commands with their positions."""
    state = MetaState()
    records: list[tuple[int, Record]] = []
    for number, command in enumerate([JoinBroker(BrokerName("mq-0"), 1, None), *commands]):
        record = decide(PendingState(state), Request(1 if number else 0, number, number, command))
        assert isinstance(record, Record)
        position = 10 + 10 * number
        records.append((position, record))
        state.apply(record, position)
    return records


BEFORE = decided(CreateVhost(KEPT), PutUser("bob", (), DIGEST, "argon2id"), CreateVhost(LOST))
RECOVERED = decided(CreateVhost(KEPT), PutUser("ann", (), DIGEST, "argon2id"))


async def apply(root: Path, records: Records) -> MetaState:
    with DataDirectory.open(root) as directory:
        found, state = await MetaFiles.open(directory)
        await found.apply(state, [each for each in records if each[0] > state.position])
        await found.close()
    return state


async def adopt(root: Path, records: Records) -> None:
    """Read the recovered log, part by part, and make the files of it."""
    with DataDirectory.open(root) as directory:
        found, state = await MetaFiles.open(directory)
        try:
            for each in records:
                if found.begins_anew:
                    await found.apply(state, [each])
            if found.begins_anew:
                await found.adopt(state)
        finally:
            await found.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return the directory of a broker with a log of the metadata, and messages in both virtual hosts."""
    path = tmp_path / "data"
    asyncio.run(apply(path, BEFORE))
    prepare_replica(str(path / META), log=bytes(16), replica="a" * 32, jump=0, raises_sequences=False, unix_ms=1)
    for vhost in (KEPT, LOST):
        (path / directory_name(vhost) / "msgs.0000000001").write_bytes(b"messages")
    return path


def check(root: Path) -> None:
    """Check that the files are of the recovered metadata, and that the log of a virtual host that stays is there."""
    assert read_vhosts(root / "vhosts.json") == [KEPT]
    assert [user.name for user in read_users(root / "users.json") or []] == ["ann"]
    assert (root / directory_name(KEPT) / "msgs.0000000001").read_bytes() == b"messages"
    state = asyncio.run(apply(root, RECOVERED))
    assert (state.position, list(state.vhosts)) == (30, [KEPT])
    kept = root / SET_ASIDE / f"{META}.{'a' * 32}.state"
    assert "bob" in (kept / "users.json").read_text()
    assert any((root / SET_ASIDE / f"{META}.{'a' * 32}").glob("msgs.*"))


def test_the_files_of_a_lost_state_are_set_aside_and_those_of_the_recovered_one_made(root: Path) -> None:
    assert begin_anew(root) is None, "nothing is marked"
    mark_anew(root)

    assert begin_anew(root) == root / SET_ASIDE
    assert json.loads((root / APPLIED).read_text())["begins_anew"] is True
    asyncio.run(adopt(root, RECOVERED))

    check(root)
    assert "begins_anew" not in json.loads((root / APPLIED).read_text())
    assert begin_anew(root) is None


class Interruption:
    """It ends the work at the call of a number."""

    def __init__(self, calls_left: int) -> None:
        self._calls_left = calls_left

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            if not self._calls_left:
                raise InterruptedError
            self._calls_left -= 1
            return call(*args, **kwargs)

        return counted


STEPS = (
    *((anew, name) for name in ("complete", "set_aside", "_keep_state", "write_applied", "sync_directory")),
    *((files, name) for name in ("write_applied", "write_checkpoint", "replace_file")),
)


@pytest.mark.parametrize("calls", range(16))
def test_a_start_goes_on_where_one_was_interrupted(root: Path, monkeypatch: pytest.MonkeyPatch, calls: int) -> None:
    mark_anew(root)
    interruption = Interruption(calls)
    with monkeypatch.context() as patched:
        for module, name in STEPS:
            patched.setattr(module, name, interruption.before(getattr(module, name)))
        try:
            begin_anew(root)
            asyncio.run(adopt(root, RECOVERED))
        except InterruptedError:
            pass

    begin_anew(root)
    asyncio.run(adopt(root, RECOVERED))

    check(root)
    assert not (root / ANEW).exists()


def test_a_virtual_host_that_is_created_after_a_recovery_has_a_number_that_none_had() -> None:
    state = MetaState()
    for position, record in RECOVERED:
        state.apply(record, position)

    pending = PendingState(state, vhost_number_min=7 << 20)

    assert pending.create_vhost(LOST, 1) == VhostCreated(LOST, 1, 7 << 20)
    assert pending.create_vhost(VhostName("next"), 1).number == (7 << 20) + 1
    assert PendingState(state).create_vhost(LOST, 1).number == 2


def test_nothing_is_asked_for_in_a_session_whose_beginning_may_be_lost(tmp_path: Path) -> None:
    async def run() -> None:
        cluster = MetaCluster(SharedLog(Random(1)), tmp_path, ["mq-0"], 1000)
        (broker,) = cluster.brokers.values()
        await broker.start()
        cluster.log.elect("mq-0")
        await broker.join()
        is_joined = False
        asker = Asker(broker.asker._link, broker.applier, broker.asker._log, retry_s=0, is_joined=lambda: is_joined)
        asker._session = broker.asker._session

        asking = asyncio.ensure_future(asker.submit(CreateVhost(KEPT)))
        for _ in range(50):
            await asyncio.sleep(0)
        assert not asking.done()
        assert KEPT not in broker.state.vhosts

        is_joined = True
        await asking
        assert KEPT in broker.state.vhosts
        await broker.kill()

    run_inline(run())
