"""The load on a cluster: virtual hosts whose leaders are spread, each with publishers and consumers."""

import base64
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from threading import Event, Thread
from typing import Final

import grpc

import penstock
from chaos.consumer import Consumer
from chaos.declarer import PREFIX, Declarer
from chaos.history import History, Producer
from chaos.leader import Leader
from chaos.mark import Mark
from chaos.publisher import Publisher, Setup
from support.serving_cluster import ServingCluster

__all__ = ["DRAIN_S", "USER", "Flow", "Load", "Marks"]

USER: Final = ("chaos", "chaos-password")
EXCHANGE: Final = "all"
TAKEN: Final = "taken"
KEPT: Final = "kept"
"""It is consumed at the end only, so that it has all messages through all faults."""
VHOSTS_MAX: Final = 12
DRAIN_S: Final = 60.0
"""Queues that are not empty have lost messages when none came for this time."""


@dataclass(frozen=True, slots=True)
class Marks:
    """A moment in one virtual host: the times until each publisher has a confirm, and each consumer a delivery."""

    confirms: list[Mark]
    deliveries: list[Mark]


@dataclass
class Flow:
    """One virtual host: its history, and the threads that make it."""

    vhost: str
    leader: Leader
    history: History
    publishers: list[Publisher]
    consumers: list[Consumer]
    late: list[Consumer]
    """The consumers of the queues that are consumed only at the end."""


class Load:
    """It is prepared, started, stopped and drained, in this order."""

    def __init__(self, cluster: ServingCluster, random: Random, rate: float, shards: int) -> None:
        self.flows: list[Flow] = []
        self._cluster = cluster
        self._rate = rate
        self._shards = shards
        self._addresses = {name: broker.address for name, broker in cluster.brokers.items()}
        token = base64.b64encode(":".join(USER).encode()).decode()
        # The clients go to the leader themselves: none is relayed.
        self._credentials = (("authorization", f"Basic {token}"), ("penstock-follows", "1"))
        self._random = random
        self._watching = Event()

    def prepare(self, count: int) -> None:
        """Create virtual hosts until `count` of them have different leaders, or that many are created."""
        led: dict[str, Leader] = {}
        spare: list[Leader] = []
        brokers = list(self._cluster.brokers.values())
        with penstock.connect(brokers[0].uri("", *USER)) as root:
            for number in range(VHOSTS_MAX):
                leader = self._create(root, f"shop{number}")
                broker = leader.find(Event())
                assert broker is not None
                spare += [leader] if broker in led else []
                led.setdefault(broker, leader)
                if len(led) == min(count, len(brokers)) and len(led) + len(spare) >= count:
                    break
        chosen = [*led.values(), *spare][:count]
        self.flows = [self._flow(leader) for leader in chosen]
        self.declarer = Declarer([flow.vhost for flow in self.flows], self._addresses, self._credentials, self._random)

    def start(self) -> None:
        Thread(target=self._watch, name="watch", daemon=True).start()
        for thread in self._threads():
            thread.start()

    def mark(self) -> dict[str, Marks]:
        """Have the times until the next confirm and the next delivery measured in each virtual host."""
        return {
            flow.vhost: Marks([each.mark() for each in flow.publishers], [each.mark() for each in flow.consumers])
            for flow in self.flows
        }

    def stop(self) -> None:
        """End publishing and declaring."""
        threads: list[Publisher | Declarer] = [each for flow in self.flows for each in flow.publishers]
        threads.append(self.declarer)
        for thread in threads:
            thread.stop()
        for thread in threads:
            thread.join()

    def drain(self) -> list[str]:
        """Consume until all queues are empty. Return those that did not become so."""
        for flow in self.flows:
            for consumer in flow.late:
                consumer.start()
        left = {flow.vhost: self._drain(flow) for flow in self.flows}
        for flow in self.flows:
            for consumer in (*flow.consumers, *flow.late):
                consumer.stop()
        for flow in self.flows:
            for consumer in (*flow.consumers, *flow.late):
                consumer.join()
        self._watching.set()
        return [f"{vhost} is not drained: {text}" for vhost, text in left.items() if text]

    def declared(self) -> set[tuple[str, str]]:
        """Return the queues of the declarer that are there."""
        (broker, *_) = self._cluster.brokers.values()
        found = set()
        for flow in self.flows:
            with penstock.connect(broker.uri(flow.vhost, *USER)) as root:
                found |= {(flow.vhost, each.name) for each in root.admin.list_queues() if each.name.startswith(PREFIX)}
        return found

    def errors(self) -> Counter[str]:
        """Return the errors that clients met."""
        found = Counter(self.declarer.errors)
        for flow in self.flows:
            clients: list[Publisher | Consumer] = [*flow.publishers, *flow.consumers, *flow.late]
            for each in clients:
                found.update(each.errors)
        return found

    # ------------------------------------------------------------ parts

    def _threads(self) -> Iterator[Publisher | Consumer | Declarer]:
        for flow in self.flows:
            yield from flow.publishers
            yield from flow.consumers
        yield self.declarer

    def _create(self, root: penstock.Connection, vhost: str) -> Leader:
        root.admin.create_vhost(vhost, self._shards)
        root.admin.set_permission(USER[0], vhost, configure=".*", write=".*", read=".*")
        (broker, *_) = self._cluster.brokers.values()
        with penstock.connect(broker.uri(vhost, *USER)) as connection:
            connection.declare_exchange(EXCHANGE, "fanout")
            for queue in (TAKEN, KEPT):
                connection.declare_queue(queue)
                connection.bind_queue(queue, EXCHANGE)
        return Leader(vhost, TAKEN, self._addresses, self._credentials)

    def _flow(self, leader: Leader) -> Flow:
        producers = [Producer("plain"), Producer("named", is_deduplicated=True)]
        history = History(producers, (TAKEN, KEPT))
        setup = Setup(leader, self._addresses, EXCHANGE, self._credentials, self._rate, self._shards)
        taken, kept = (Consumer(leader, self._addresses, queue, history, self._credentials) for queue in (TAKEN, KEPT))
        return Flow(
            leader.vhost, leader, history, [Publisher(setup, producer) for producer in producers], [taken], [kept]
        )

    def _watch(self) -> None:
        """End streams that stall or are at a broker that does not lead any more."""
        while not self._watching.wait(0.1):
            for flow in self.flows:
                for publisher in flow.publishers:
                    publisher.check_stall()
                for consumer in (*flow.consumers, *flow.late):
                    consumer.check_leader()

    def _drain(self, flow: Flow) -> str:
        """Return an empty text when the queues of a virtual host are empty, and their counts otherwise."""
        consumers = [*flow.consumers, *flow.late]
        for consumer in consumers:
            consumer.last_at = time.monotonic()
        counts = ""
        while time.monotonic() - max(each.last_at for each in consumers) < DRAIN_S:
            with suppress(grpc.RpcError, penstock.PenstockError):
                counts = self._left(flow)
                if not counts:
                    return ""
            time.sleep(0.2)
        return counts

    def _left(self, flow: Flow) -> str:
        broker = flow.leader.find(Event())
        assert broker is not None
        with penstock.connect(self._cluster.brokers[broker].uri(flow.vhost, *USER), timeout=5) as connection:
            queues = [connection.admin.get_queue(name) for name in (TAKEN, KEPT)]
        if broker != flow.leader.current:
            return "another broker leads"
        full = [each for each in queues if each.ready_count or each.unacked_count]
        return ", ".join(f"{each.name} has {each.ready_count} ready and {each.unacked_count} unacked" for each in full)
