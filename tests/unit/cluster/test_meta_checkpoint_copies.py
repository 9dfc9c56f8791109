"""Copies of checkpoints between brokers: whole and undamaged, or not taken; and up to where a log is not needed."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from penstock.cluster.calls import LostCallError, NotCarriedOutError
from penstock.cluster.meta.changes import BrokerPut
from penstock.cluster.meta.checkpoint import checkpoint_of, write_checkpoint
from penstock.cluster.meta.checkpoint_copies import (
    PART_BYTES_MAX,
    PINNED_MAX,
    Assembly,
    CheckpointFetcher,
    CheckpointServer,
    Part,
    decode_part,
    encode_part,
    encode_question,
)
from penstock.cluster.meta.commands import Addresses
from penstock.cluster.meta.shortening import encode_position, settled_until
from penstock.cluster.meta.state import MetaState
from penstock.cluster.record import BrokerName
from penstock.storage.cluster_json import CHECKPOINT
from penstock.storage.definitions_proof import Proof


def state_at(position: int, brokers: int = 1) -> MetaState:
    state = MetaState()
    for number in range(brokers):
        state.change(BrokerPut(BrokerName(f"broker-{number}"), position, 0, False, Addresses()))
    state.position = position
    return state


@dataclass
class Disk:
    """The checkpoint of a broker, which is replaced."""

    root: Path
    checkpoint: int = 0

    @property
    def checkpoint_path(self) -> Path:
        return self.root / CHECKPOINT

    def write(self, state: MetaState) -> None:
        write_checkpoint(self.checkpoint_path, state)
        self.checkpoint = state.position


class Brokers:
    """Other brokers by number, whose answers a test changes on their way."""

    def __init__(self, servers: dict[int, CheckpointServer]) -> None:
        self.asked: list[int] = []
        self.on_the_way: Callable[[int, bytes], bytes] = lambda _, answer: answer
        self._servers = servers

    async def numbers(self) -> Sequence[int]:
        return list(self._servers)

    async def ask(self, broker: int, question: bytes) -> bytes:
        self.asked.append(broker)
        return self.on_the_way(broker, await self._servers[broker].answer(question))

    async def take(self, position_min: int) -> MetaState:
        async with asyncio.timeout(60):
            return await CheckpointFetcher(self.numbers, self.ask, retry_s=0).take(position_min)


def test_a_checkpoint_of_several_parts_is_fetched_also_while_newer_ones_are_written(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    wanted = state_at(10, 6_000)
    disk.write(wanted)
    server = CheckpointServer(disk)
    brokers = Brokers({1: server})

    def write_another(_: int, answer: bytes) -> bytes:
        disk.write(state_at(disk.checkpoint + 10, 6_000))
        return answer

    brokers.on_the_way = write_another
    found = asyncio.run(brokers.take(5))
    server.close()

    assert checkpoint_of(found) == checkpoint_of(wanted)
    assert len(brokers.asked) == -(-len(checkpoint_of(wanted)) // PART_BYTES_MAX) > 1


def test_a_checkpoint_that_is_too_old_is_not_taken_and_the_next_broker_is_asked(tmp_path: Path) -> None:
    servers: dict[int, CheckpointServer] = {}
    for number, position in enumerate([0, 10, 20], 1):
        root = tmp_path / str(number)
        root.mkdir()
        disk = Disk(root)
        if position:
            disk.write(state_at(position))
        servers[number] = CheckpointServer(disk)
    brokers = Brokers(servers)

    found = asyncio.run(brokers.take(11))

    assert (found.position, brokers.asked) == (20, [1, 2, 3])
    for server in servers.values():
        server.close()


def cut(answer: bytes) -> bytes:
    return answer[:5]


def damaged(answer: bytes) -> bytes:
    return answer[:-3] + b"!" + answer[-2:]


def empty(answer: bytes) -> bytes:
    return encode_part(replace(decode_part(answer), content=b""))


def longer(answer: bytes) -> bytes:
    return answer + b"!"


def at_another_position(answer: bytes) -> bytes:
    return encode_part(replace(decode_part(answer), position=77))


def lost(_: bytes) -> bytes:
    raise LostCallError


def refused(_: bytes) -> bytes:
    raise NotCarriedOutError


@pytest.mark.parametrize("change", [cut, damaged, empty, longer, at_another_position, lost, refused])
@pytest.mark.parametrize("number", [0, 1])
def test_a_part_that_is_damaged_or_lost_ends_the_copy_and_another_one_begins(
    change: Callable[[bytes], bytes], number: int, tmp_path: Path
) -> None:
    disk = Disk(tmp_path)
    wanted = state_at(10, 6_000)
    disk.write(wanted)
    server = CheckpointServer(disk)
    brokers = Brokers({1: server, 2: server})

    def change_one(_: int, answer: bytes) -> bytes:
        return change(answer) if len(brokers.asked) == number + 1 else answer

    brokers.on_the_way = change_one
    found = asyncio.run(brokers.take(10))
    server.close()

    assert checkpoint_of(found) == checkpoint_of(wanted)
    assert set(brokers.asked) == {1, 2}


def test_a_part_of_another_checkpoint_is_refused() -> None:
    first = Part(10, Proof(6, 1), b"abc")
    for other in (replace(first, position=11), replace(first, whole=Proof(7, 1)), replace(first, whole=Proof(6, 2))):
        assembly = Assembly(first)
        with pytest.raises(NotCarriedOutError):
            assembly.take(other)


def test_only_the_newest_checkpoints_that_were_asked_for_are_kept(tmp_path: Path) -> None:
    async def run() -> None:
        disk = Disk(tmp_path)
        server = CheckpointServer(disk)
        for position in range(1, PINNED_MAX + 2):
            disk.write(state_at(position))
            assert decode_part(await server.answer(encode_question(0, 0))).position == position
        assert decode_part(await server.answer(encode_question(2, 0))).position == 2
        with pytest.raises(NotCarriedOutError):
            await server.answer(encode_question(1, 0))
        with pytest.raises(NotCarriedOutError):
            await server.answer(b"a")
        server.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("others", "until"),
    [
        ([], 30),
        ([encode_position(40)], 30),
        ([encode_position(40), encode_position(20)], 20),
        ([encode_position(40), None], 0),
        ([b"of another version"], 0),
        ([encode_position(0)], 0),
    ],
)
def test_the_log_is_needed_from_the_lowest_checkpoint_of_the_brokers_in_sync(
    others: list[bytes | None], until: int
) -> None:
    assert settled_until(30, others) == until
