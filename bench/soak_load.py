"""The load of a soak: flows of a steady rate, each with a publisher and a consumer, and short connections.

Every flow's messages carry numbers and are checked by a ledger. Rates are targets, not maximums: the machine stays
usable. A refusal or a broken connection is a finding and ends the load with its exception.
"""

import asyncio
import time
from dataclasses import dataclass, field

import penstock
import penstock.aio
from bench import soak_probe
from bench.soak_ledger import Ledger, body
from bench.soak_probe import Probe

__all__ = ["FLOWS", "Flow", "Load", "Visits"]

TICK_SECONDS = 0.05
IDLE_SECONDS = 0.5
# How long a connection lives before another one replaces it.
PUBLISHER_SECONDS = 30.0
RESTLESS_SECONDS = 5.0
BACKLOG = 200_000
FILL_CHUNK = 2_000
REQUEUE_EVERY = 10
VISIT_SECONDS = 1.0
VISIT_MESSAGES = 20
DRAIN_SECONDS_MAX = 120.0


@dataclass(frozen=True)
class Flow:
    """One queue's traffic. `backlog` messages stay in it; `requeues` requeues some once; `restless` reconnects.

    A rate of 0: another process publishes.
    """

    name: str
    rate: int
    size: int
    transient: bool = False
    backlog: int = 0
    requeues: bool = False
    restless: bool = False


FLOWS = (
    Flow("orders", rate=6_000, size=104),
    Flow("events", rate=8_000, size=104, transient=True),
    Flow("documents", rate=1_000, size=1_024),
    Flow("retried", rate=2_000, size=104, requeues=True),
    Flow("restless", rate=2_600, size=104, transient=True, restless=True),
    Flow("slow", rate=400, size=256, backlog=BACKLOG),
    Flow(soak_probe.QUEUE, rate=0, size=soak_probe.BODY_BYTES),
)


@dataclass
class Visits:
    """Connections that declare a queue, use it and delete it. `wrong` are deletions that returned another count."""

    count: int = 0
    wrong: int = 0


@dataclass
class Load:
    uri: str
    seconds: float
    ledgers: dict[str, Ledger] = field(default_factory=lambda: {flow.name: Ledger(flow.name) for flow in FLOWS})
    visits: Visits = field(default_factory=Visits)
    is_draining: bool = False

    def __post_init__(self) -> None:
        self.probe = Probe(self.uri, self.ledgers[soak_probe.QUEUE])

    async def prepare(self) -> None:
        """Declare the queues and fill those with a backlog."""
        async with penstock.aio.connect(self.uri) as connection:
            for flow in FLOWS:
                await connection.declare_queue(flow.name)
                ledger = self.ledgers[flow.name]
                while ledger.confirmed < flow.backlog:
                    await publish_next(connection, flow, ledger, FILL_CHUNK)

    async def run(self) -> None:
        """Publish and consume for the time, then consume until the queues are empty or nothing moves any more."""
        deadline = time.perf_counter() + self.seconds
        async with asyncio.TaskGroup() as consumers:
            for flow in FLOWS:
                consumers.create_task(self._consume(flow))
            async with asyncio.TaskGroup() as publishers:
                publishers.create_task(self._visit(deadline))
                publishers.create_task(self.probe.follow(deadline))
                for flow in (each for each in FLOWS if each.rate):
                    publishers.create_task(self._publish(flow, deadline))
            self.is_draining = True

    async def _publish(self, flow: Flow, deadline: float) -> None:
        ledger = self.ledgers[flow.name]
        while time.perf_counter() < deadline:
            leaves = min(deadline, time.perf_counter() + PUBLISHER_SECONDS)
            async with penstock.aio.connect(self.uri) as connection:
                while (now := time.perf_counter()) < leaves:
                    await publish_next(connection, flow, ledger, int(flow.rate * TICK_SECONDS))
                    # Time lost by a stall is not made up for: the load must not become a burst.
                    await asyncio.sleep(max(0.0, now + TICK_SECONDS - time.perf_counter()))

    async def _consume(self, flow: Flow) -> None:
        ledger = self.ledgers[flow.name]
        moved = time.perf_counter()
        while not (self.is_draining and ledger.waiting == 0):
            before = ledger.acknowledged
            async with penstock.aio.connect(self.uri) as connection:
                await self._take(connection, flow, ledger)
            if ledger.acknowledged > before or not self.is_draining:
                moved = time.perf_counter()
            elif time.perf_counter() - moved > DRAIN_SECONDS_MAX:
                return

    async def _take(self, connection: penstock.aio.Connection, flow: Flow, ledger: Ledger) -> None:
        """Consume until nothing came for a while; a restless consumer leaves sooner, with unacked messages."""
        leaves = time.perf_counter() + RESTLESS_SECONDS
        async for message in connection.consume(flow.name, idle_timeout=IDLE_SECONDS):
            number = ledger.deliver(message.body, flow.size, message.redelivered)
            if flow.restless and not self.is_draining and time.perf_counter() > leaves:
                return
            if flow.requeues and number is not None and number % REQUEUE_EVERY == 0 and not message.redelivered:
                message.nack()
                continue
            message.ack()
            if number is not None:
                ledger.acknowledge(number)
            if self.is_draining and ledger.waiting == 0:
                return
            if flow.backlog > ledger.waiting and not self.is_draining:
                await asyncio.sleep(TICK_SECONDS)

    async def _visit(self, deadline: float) -> None:
        while time.perf_counter() < deadline:
            name = f"visitor-{self.visits.count}"
            async with penstock.aio.connect(self.uri) as connection:
                await connection.declare_queue(name, durable=self.visits.count % 2 == 0)
                await connection.bind_queue(name, "amq.topic", f"{name}.*")
                await connection.publish_many([b"visit"] * VISIT_MESSAGES, "amq.topic", f"{name}.came")
                await connection.get(name, auto_ack=True)
                self.visits.wrong += await connection.delete_queue(name) != VISIT_MESSAGES - 1
            self.visits.count += 1
            await asyncio.sleep(VISIT_SECONDS)


async def publish_next(connection: penstock.aio.Connection, flow: Flow, ledger: Ledger, count: int) -> None:
    bodies = [body(number, flow.size) for number in range(ledger.confirmed, ledger.confirmed + count)]
    properties = penstock.Properties(delivery_mode=penstock.TRANSIENT) if flow.transient else None
    await connection.publish_many(bodies, routing_key=flow.name, properties=properties)
    ledger.confirmed += count
