"""Kills the broker under load repeatedly, and checks its promises.

Nothing confirmed is lost, nothing acknowledged or purged comes back but what was in transit, the order stays, and
answered changes of queues hold.

One publisher confirms with durability os, another with disk. Most messages go to `taken`, whose consumer acknowledges
them; some go by one record to `kept`, which is read at the end only, to `given`, whose consumer requeues each once, to
`purged`, and to short-lived queues. Segments are small, so that folds and compaction are always running.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import grpc
import pytest

import penstock
from crash.ledger import SPAN, Published, Purged, Settled, check_order
from crash.load import BATCH, Consumer, Operator, Publisher
from penstock.v1 import messaging_pb2 as wire
from support import Broker

ROUNDS = int(os.environ.get("KILL_ROUNDS", "100"))
SEED = int(os.environ.get("KILL_SEED", "0")) or Random().randrange(1, 1_000_000)
CONFIRMS = (1, 3_000)
DURABILITIES = (wire.DURABILITY_OS, wire.DURABILITY_DISK)
SETTINGS = """
segment_bytes_min = 65536
segment_bytes_max = 1048576
compaction_bytes_per_second = 67108864
"""


def exchange_of(number: int) -> str:
    """Return the exchange: every eighth batch goes to all queues."""
    return "all" if number // BATCH % 8 == 0 else "most"


class Ledger:
    """State over all rounds."""

    def __init__(self) -> None:
        self.published = Published()
        self.taken, self.given = Settled(), Settled()
        self.purged = Purged()
        self.compacted_bytes = 0.0

    def confirmed_of_all(self) -> set[int]:
        return {number for number in self.published.confirmed if exchange_of(number) == "all"}


@contextmanager
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(broker.address, options=options) as opened:
        yield opened


def round_under_load(broker: Broker, ledger: Ledger, name: str, random: Random) -> None:
    confirms = random.randint(*CONFIRMS)
    waits_for = random.randrange(len(DURABILITIES))
    with channel(broker) as upward, channel(broker) as downward:
        publishers = [
            Publisher(upward, exchange_of, durability, ledger.published.next_of(at), confirms)
            for at, durability in enumerate(DURABILITIES)
        ]
        taken, given = Consumer(downward, "taken"), Consumer(downward, "given", requeues=True)
        operator = Operator(upward, name, "all", "purged")
        watch_purges(operator, publishers, ledger.purged)
        threads = (taken, given, *publishers, operator)
        for thread in threads:
            thread.start()
        publishers[waits_for].wait()
        ledger.compacted_bytes += compacted_bytes(broker)
        broker.kill()
        for thread in threads:
            thread.join()
    assert [*publishers[0].refusals, *publishers[1].refusals, *operator.failures] == []
    assert taken.failures + given.failures == []
    for at, publisher in enumerate(publishers):
        ledger.published.next_numbers[at] = publisher.next_number
        ledger.published.confirmed.update(publisher.confirmed)
    ledger.published.check_known(taken.delivered + given.delivered)
    check_order(taken.delivered)
    ledger.taken.enter(taken)
    ledger.given.enter(given)
    broker.start()
    check_after_start(broker, ledger, operator)


def watch_purges(operator: Operator, publishers: list[Publisher], purged: Purged) -> None:
    asked: dict[int, int] = {}

    def before() -> None:
        purged.is_open = True
        asked.update({at: publisher.confirmed[-1] for at, publisher in enumerate(publishers) if publisher.confirmed})

    def after() -> None:
        purged.gone_to.update(asked)
        purged.kept_from = {at: publisher.next_number for at, publisher in enumerate(publishers)}
        purged.is_open = False

    operator.around_purges(before, after)


def check_after_start(broker: Broker, ledger: Ledger, operator: Operator) -> None:
    """Queues that come and go, of which those that are left are deleted, and where the purged one begins."""
    with penstock.connect(broker.uri()) as root:
        found = {queue.name for queue in root.admin.list_queues()} - {"taken", "kept", "given", "purged"}
        assert operator.declares_answered - operator.deletes_asked <= found, (
            "a queue whose declare was answered is gone"
        )
        assert found.isdisjoint(operator.deletes_answered), "a queue whose delete was answered is back"
        assert found <= operator.declares_asked, "nobody declared it"
        for name in found:
            root.delete_queue(name)
        first = root.get("purged")
        ledger.purged.check([] if first is None else [int(first.body)])


def drained(broker: Broker, queue: str) -> list[int]:
    """Everything that is in the queue, in order."""
    with penstock.connect(broker.uri()) as root:
        ready = root.admin.get_queue(queue).ready_count
    with channel(broker) as downward:
        consumer = Consumer(downward, queue)
        consumer.start()
        consumer.wait_for(ready)
        consumer.end()
    assert consumer.failures == []
    return consumer.delivered


def compacted_bytes(broker: Broker) -> float:
    lines = [line for line in broker.scrape().splitlines() if line.startswith("penstock_compaction_bytes_total")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.slow
def test_a_broker_killed_under_load_keeps_its_promises(tmp_path: Path) -> None:
    print(f"KILL_SEED={SEED} KILL_ROUNDS={ROUNDS}")
    random, ledger = Random(SEED), Ledger()
    settings = tmp_path / "penstock.toml"
    settings.write_text(SETTINGS)
    with Broker(tmp_path / "data", "--config", str(settings)) as broker:
        with penstock.connect(broker.uri()) as root:
            for exchange, queues in (("all", ("taken", "kept", "given", "purged")), ("most", ("taken",))):
                root.declare_exchange(exchange, "fanout")
                for queue in queues:
                    root.declare_queue(queue)
                    root.bind_queue(queue, exchange)

        for number in range(ROUNDS):
            round_under_load(broker, ledger, f"q{number}", random)

        kept, purged = drained(broker, "kept"), drained(broker, "purged")
        taken, given = drained(broker, "taken"), drained(broker, "given")

    confirmed, of_all = ledger.published.confirmed, ledger.confirmed_of_all()
    for left in (kept, purged, taken, given):
        check_order(left)
        ledger.published.check_known(left)
    ledger.taken.check(taken)
    ledger.taken.check_complete(confirmed, taken)
    ledger.given.check(given)
    ledger.given.check_complete(of_all, given)
    assert of_all <= set(kept), "confirmed and lost from `kept`"
    ledger.purged.check(purged)
    ledger.purged.check_complete(of_all, purged)
    assert ledger.compacted_bytes > 0, "compaction had nothing to do"
    assert len(confirmed) > ROUNDS
    assert {number // SPAN for number in confirmed} == {0, 1}


def test_300_000_confirmed_messages_are_there_after_a_kill_in_order_and_once(tmp_path: Path) -> None:
    bodies = [b"%d" % number for number in range(300_000)]
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri()) as client:
            client.declare_queue("jobs")
            client.publish_many(bodies, routing_key="jobs")
            broker.kill()
        broker.start()

        assert drained(broker, "jobs") == list(range(300_000))
