"""Random virtual hosts and histories on a broker over AMQP, compared with a small oracle after each step, with kills.

Every run has a seed, which a failure names: ORACLE_SEED repeats it. The steps are publishes (with priorities, times, CC
and BCC), acks, rejections with and without a requeue, lost connections, and kills of the broker: of one that is quiet,
and of one that takes a message, which is then stored in all of its queues or in none.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, NackError, UnroutableError

import penstock
from crash.histories import fed_by_letters, random_message, random_vhost
from crash.oracle import EXPIRES_AT_ONCE, Death, Message
from penstock.client.peek_calls import PeekedMessage
from support import Broker
from support.broker import free_ports
from support.waiting import eventually

RUNS = int(os.environ.get("ORACLE_RUNS", "6"))
STEPS = int(os.environ.get("ORACLE_STEPS", "60"))
SEED = int(os.environ.get("ORACLE_SEED", "0")) or Random().randrange(1, 1_000_000)
SHARDS = (1, 3)
PEEKED_MAX = 1_000
Shown: TypeAlias = tuple[bytes, str, str, tuple[Death, ...], tuple[str, str]]
"""What is compared of a message: body, exchange, routing key, all deaths and the first one."""


class Run:
    """A broker beside its oracle. `steps` says what was done, for a failure."""

    def __init__(self, seed: int, shards: int, data_dir: Path) -> None:
        self.random = Random(seed)
        self.shards = shards
        self.port = free_ports(1)[0]
        self.broker = Broker(data_dir, "--amqp", f"127.0.0.1:{self.port}", shards=shards)
        self.oracle = random_vhost(self.random)
        self.unordered = fed_by_letters(self.oracle)
        self.steps: list[str] = []
        self._number = 0

    def connect(self) -> None:
        self.admin = penstock.connect(self.broker.uri())
        self.amqp = pika.BlockingConnection(parameters(self.port))
        self.channel = self.amqp.channel()
        self.channel.confirm_delivery()

    def close(self) -> None:
        for each in (self.amqp, self.admin):
            with suppress(AMQPError, penstock.PenstockError):
                each.close()

    def declare(self) -> None:
        for name, exchange in self.oracle.exchanges.items():
            arguments = {"alternate-exchange": exchange.alternate} if exchange.alternate is not None else {}
            self.channel.exchange_declare(name, exchange.kind, durable=True, arguments=arguments)
        for name, queue in self.oracle.queues.items():
            self.channel.queue_declare(name, durable=True, arguments=dict(queue.arguments))
        for one in self.oracle.bindings:
            bind = self.channel.exchange_bind if one.to_exchange else self.channel.queue_bind
            bind(one.destination, one.source, one.key, dict(one.arguments))

    def step(self) -> None:
        kinds = {"publish": 12, "settle": 10, "lose": 2, "kill": 1, "kill_in_between": 1 if self.shards == 1 else 0}
        (kind,) = self.random.choices(list(kinds), list(kinds.values()))
        getattr(self, kind)()

    def message(self) -> Message:
        self._number += 1
        return random_message(self.random, b"m%d" % self._number)

    def publish(self) -> None:
        message = self.message()
        self.steps.append(f"publish {message}")
        outcome = publish(self.channel, message)
        is_found, is_stored = self.oracle.publish(message)
        assert outcome == ("returned" if not is_found else "stored" if is_stored else "refused")

    def settle(self) -> None:
        """Get a message and ack or reject it."""
        found = self.taken(self.channel)
        if found is None:
            return
        (queue, message, tag), how = found, self.random.choice(("ack", "reject", "requeue", "requeue"))
        self.steps.append(f"{how} {message.body!r} of {queue}")
        if how == "ack":
            self.channel.basic_ack(tag)
            self.oracle.ack(queue, message)
        elif how == "reject":
            self.channel.basic_reject(tag, requeue=False)
            self.oracle.reject(queue, message)
        else:
            self.channel.basic_reject(tag, requeue=True)
            self.oracle.return_to(queue, message)

    def lose(self) -> None:
        """Get a message on a connection that is closed then."""
        with pika.BlockingConnection(parameters(self.port)) as connection:
            found = self.taken(connection.channel())
        if found is not None:
            queue, message, _ = found
            self.steps.append(f"lose {message.body!r} of {queue}")
            self.oracle.return_to(queue, message)

    def taken(self, channel: BlockingChannel) -> tuple[str, Message, int] | None:
        """Get a message of a queue that has some; return it as the oracle has it, with its delivery tag."""
        names = [name for name, queue in self.oracle.queues.items() if queue.messages]
        if not names:
            return None
        name = self.random.choice(names)
        method, properties, body = channel.basic_get(name)
        assert method is not None, f"{name} is empty"
        queue = self.oracle.queues[name]
        deaths = deaths_of(properties.headers or {})
        same = [message for message in queue.messages if (message.body, message.deaths) == (body, deaths)]
        assert same, f"{name} has no {body!r}"
        if name not in self.unordered:
            assert body == queue.messages[0].body
        assert queue.rank(same[0]) == max(map(queue.rank, queue.messages))
        assert method.redelivered or same[0].delivered_count == 0
        return name, same[0], method.delivery_tag

    def kill(self) -> None:
        self.steps.append("kill")
        self.broker.kill()
        self.close()
        self.broker.start()
        self.connect()

    def kill_in_between(self) -> None:
        """Kill the broker while it takes messages. The last one may be stored without a confirm."""
        sent: list[tuple[Message, str]] = []
        publisher = threading.Thread(target=self._publish_until_killed, args=(sent,))
        publisher.start()
        threading.Event().wait(self.random.random() / 50)
        self.kill()
        publisher.join()
        self.steps.append(f"of {[message for message, _ in sent]}")
        for message, outcome in sent:
            if outcome != "unknown" or self._is_seen(message):
                self.oracle.publish(message)

    def _publish_until_killed(self, sent: list[tuple[Message, str]]) -> None:
        try:
            with pika.BlockingConnection(parameters(self.port)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                while True:
                    sent.append((replace(self.message(), expires=False), "unknown"))
                    sent[-1] = (sent[-1][0], publish(channel, sent[-1][0]))
        except (AMQPError, OSError):
            return

    def _is_seen(self, message: Message) -> bool:
        found = (each for name in self.oracle.queues for each in self.admin.peek(name, PEEKED_MAX))
        return any(message.body == each.body for each in found)

    def check(self) -> None:
        """Compare all queues. Dead letters and expiries take a moment."""
        wanted = {name: self._shown(name, map(of_oracle, queue.messages)) for name, queue in self.oracle.queues.items()}
        eventually(self._found, wanted)

    def _found(self) -> dict[str, list[Shown]]:
        return {
            name: self._shown(name, map(of_broker, self.admin.peek(name, PEEKED_MAX))) for name in self.oracle.queues
        }

    def _shown(self, name: str, messages: Iterable[Shown]) -> list[Shown]:
        """Return messages in their order, where that is decided."""
        return sorted(messages) if name in self.unordered else list(messages)


def publish(channel: BlockingChannel, message: Message) -> str:
    expiration = str(EXPIRES_AT_ONCE) if message.expires else None
    properties = pika.BasicProperties(
        headers=dict(message.headers), priority=message.priority, expiration=expiration, delivery_mode=2
    )
    try:
        channel.basic_publish(message.exchange, message.key, message.body, properties, mandatory=True)
    except UnroutableError:
        return "returned"
    except NackError:
        return "refused"
    return "stored"


def of_oracle(message: Message) -> Shown:
    return message.body, message.exchange, message.key, message.deaths, message.first_death or ("", "")


def of_broker(message: PeekedMessage) -> Shown:
    headers: Mapping[str, Any] = message.headers
    first = (str(headers.get("x-first-death-queue", "")), str(headers.get("x-first-death-reason", "")))
    return bytes(message.body), message.exchange, message.routing_key, deaths_of(headers), first


def deaths_of(headers: Mapping[str, Any]) -> tuple[Death, ...]:
    return tuple(Death(each["queue"], each["reason"], each["count"]) for each in headers.get("x-death", ()))


def parameters(port: int) -> pika.ConnectionParameters:
    return pika.ConnectionParameters("127.0.0.1", port, "/", pika.PlainCredentials("guest", "guest"), socket_timeout=10)


@pytest.mark.parametrize("number", range(RUNS))
def test_a_random_history_ends_as_the_oracle_says(number: int, tmp_path: Path) -> None:
    run = Run(SEED + number, SHARDS[number % len(SHARDS)], tmp_path / "data")
    with run.broker:
        run.connect()
        run.declare()
        try:
            for _ in range(STEPS):
                run.step()
                run.check()
        except AssertionError as error:
            topology = "\n".join(map(str, (*run.oracle.exchanges.items(), *run.oracle.bindings)))
            arguments = "\n".join(f"{name}: {queue.arguments}" for name, queue in run.oracle.queues.items())
            steps = "\n".join(run.steps)
            pytest.fail(f"ORACLE_SEED={SEED + number} repeats it ({error})\n{topology}\n{arguments}\n{steps}")
        finally:
            run.close()
    figures = Counter(step.split()[0] for step in run.steps)
    print(f"\nfigure: seed {SEED + number}, {run.shards} shards: {dict(figures)}")
