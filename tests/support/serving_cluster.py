"""The brokers of one cluster, three if no others are named, each a process started by `penstock serve`.

The coordinator is a directory.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import penstock
from penstock.client.errors import ConnectionLostError
from penstock.v1 import messaging_pb2
from support.broker import LOOPBACK, Broker, Place, free_ports
from support.plain_client import FOLLOWS, GUEST, plain_client, refusal_of
from support.waiting import eventually

NAMES = ("mq-0", "mq-1", "mq-2")
SECONDS_MAX = 60
"""Only ends a test that would otherwise never end."""


class ServingCluster:
    """It starts all brokers on entering, at once, and kills them on leaving."""

    def __init__(
        self,
        root: Path,
        *flags: str,
        places: Mapping[str, Place] | None = None,
        program: str | None = None,
        names: Sequence[str] = NAMES,
        shards: int | None = None,
    ) -> None:
        """Make brokers; `program` is their command, where it is not that of this checkout.

        `shards` are those of the virtual host `/`; None for as many as in this run of the tests.
        """
        self._root, self._flags, self._program, self._shards = root, flags, program, shards
        self._places = places or {}
        self._secret = root / "secret"
        self._secret.write_text("0123456789abcdef0123456789abcdef\n")
        self._peers: dict[str, str] = {}
        self.amqp: dict[str, str] = {}
        self.coordinator = root / "coordinator"
        self._draw_addresses(names)
        self.brokers = {name: self._broker(name) for name in names}

    def add(self, name: str) -> Broker:
        """Make one broker more, which knows the others. They do not know it."""
        self._draw_addresses([name])
        self.brokers[name] = self._broker(name)
        return self.brokers[name]

    def peers_of(self, name: str) -> str:
        """Return where other brokers reach one."""
        return self._peers[name]

    def _draw_addresses(self, names: Sequence[str]) -> None:
        ports = free_ports(2 * len(names))
        for name, peers, amqp in zip(names, ports[: len(names)], ports[len(names) :], strict=True):
            host = self._places.get(name, LOOPBACK).host
            self._peers[name], self.amqp[name] = f"{host}:{peers}", f"{host}:{amqp}"

    def _broker(self, name: str) -> Broker:
        brokers = ",".join(f"{each}={address}" for each, address in self._peers.items())
        return Broker(
            self._root / name,
            *("--amqp", self.amqp[name]),
            *("--cluster", "test", "--cluster-broker", name, "--cluster-brokers", brokers),
            *("--cluster-peers", self._peers[name], "--cluster-coordinator", f"file:{self.coordinator}"),
            *("--cluster-secret-file", str(self._secret)),
            *self._flags,
            shards=self._shards,
            place=self._places.get(name, LOOPBACK),
            program=self._program,
        )

    def start_all(self) -> None:
        self.start(*self.brokers)

    def start(self, *names: str) -> None:
        """Start some brokers at once: one alone waits for a majority."""
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(Broker.start, (self.brokers[name] for name in names)))

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.kill_all()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill_all()

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            broker.__exit__(None, None, None)

    def leader(self, vhost: str = "", among: Sequence[str] = ()) -> str:
        """Return the broker that serves the messages of a virtual host to `guest`, once one does."""
        found: list[str] = []

        def is_led() -> bool:
            found[:] = [name for name in among or self.brokers if self._serves(name, vhost)]
            return len(found) == 1

        eventually(is_led, True, SECONDS_MAX)
        return found[0]

    def leader_of_metadata(self) -> str:
        """Return the broker that leads the shard `meta`, as far as the coordinator knows."""
        record = json.loads((self.coordinator / "shard-meta.json").read_text())["record"]
        return str(record["leader"]["broker"])

    def until_all_in_sync(self) -> None:
        """Wait until the replicas of every shard are in sync, and a majority has to be."""

        def is_in_sync() -> bool:
            records = [json.loads(path.read_text())["record"] for path in self.coordinator.glob("shard-*.json")]
            return len(records) >= 2 and all(
                len(record["in_sync"]) == len(record["replicas"]) and record["min_in_sync"] == minimum_of(record)
                for record in records
            )

        eventually(is_in_sync, True, SECONDS_MAX)

    def _serves(self, name: str, vhost: str) -> bool:
        request = messaging_pb2.GetRequest(vhost=vhost, queue="no such queue")
        with plain_client(self.brokers[name].address, (*GUEST, FOLLOWS)) as client:
            refused = refusal_of(lambda: client.ask(client.messages.Get, request))
        # A permission may arrive there after it was answered.
        return isinstance(refused, penstock.NotFoundError)


def minimum_of(record: Mapping[str, Any]) -> int:
    """Return how many replicas of a shard have to be in sync: a majority, where their number is odd."""
    return max(1, (len(record["replicas"]) + 1) // 2)


def until_done(act: Callable[[], object]) -> None:
    """Repeat what needs a leader until one does it."""

    def is_done() -> bool:
        try:
            act()
        except ConnectionLostError:
            return False
        return True

    eventually(is_done, True, SECONDS_MAX)
