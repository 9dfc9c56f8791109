"""Random virtual hosts and random messages for the oracle, each from a seed.

Queues that dead letters may come to have no limit: of letters on several ways it is not decided which comes first. A
queue where messages expire has none, either: it is not decided whether one expires before the queue is full.
"""

from random import Random
from typing import Any

from crash.oracle import EXPIRES_AT_ONCE, Binding, Exchange, Message, Queue, Vhost

KEYS = ("a", "b", "a.b", "b.a.a")
PATTERNS = ("#", "a", "*", "a.#", "*.b", "#.a", "b.*.a")
MATCHES = ({"h": 1}, {"h": 2}, {"h": 1, "g": "x"})
QUEUES = tuple(f"q{number}" for number in range(6))
EXCHANGES = tuple(f"e{number}" for number in range(5))


def random_vhost(random: Random) -> Vhost:
    vhost = Vhost()
    for name in EXCHANGES:
        kind = random.choice(("direct", "fanout", "topic", "headers"))
        vhost.exchanges[name] = Exchange(kind, random.choice((None, *EXCHANGES)))
    for name in QUEUES:
        vhost.queues[name] = Queue(_arguments(random))
    for _ in range(14):
        binding = _binding(random, vhost)
        if binding not in vhost.bindings:
            vhost.bindings.append(binding)
    for name in fed_by_letters(vhost):
        arguments = {**vhost.queues[name].arguments}
        arguments.pop("x-max-length", None)
        arguments.pop("x-overflow", None)
        vhost.queues[name] = Queue(arguments)
    return vhost


def _arguments(random: Random) -> dict[str, Any]:
    drawn: dict[str, Any] = {}
    if random.random() < 0.6:
        drawn["x-dead-letter-exchange"] = random.choice(("", *EXCHANGES))
        if drawn["x-dead-letter-exchange"] == "" or random.random() < 0.5:
            drawn["x-dead-letter-routing-key"] = random.choice((*QUEUES, *KEYS))
    if random.random() < 0.3:
        drawn["x-max-priority"] = random.choice((1, 3))
    if random.random() < 0.2:
        drawn["x-message-ttl"] = EXPIRES_AT_ONCE
    elif random.random() < 0.5:
        drawn |= {
            "x-max-length": random.choice((1, 2, 4)),
            "x-overflow": random.choice(("drop-head", "reject-publish")),
        }
    if random.random() < 0.4:
        drawn["x-delivery-limit"] = random.choice((0, 1, 2))
    return drawn


def _binding(random: Random, vhost: Vhost) -> Binding:
    source = random.choice(EXCHANGES)
    to_exchange = random.random() < 0.3
    kind = vhost.exchanges[source].kind
    key = random.choice(PATTERNS if kind == "topic" else KEYS)
    arguments = {**random.choice(MATCHES), "x-match": random.choice(("all", "any"))} if kind == "headers" else {}
    return Binding(source, random.choice(EXCHANGES if to_exchange else QUEUES), to_exchange, key, arguments)


def fed_by_letters(vhost: Vhost) -> set[str]:
    """Return the queues that dead letters may come to: any binding leads to them from a dead-letter exchange."""
    waiting = [one.arguments["x-dead-letter-exchange"] for one in vhost.queues.values() if is_lettered(one)]
    found = {one.arguments.get("x-dead-letter-routing-key", "") for one in vhost.queues.values()} & set(QUEUES)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name == "":
            continue
        seen.add(name)
        alternate = vhost.exchanges[name].alternate
        waiting += [alternate] if alternate is not None else []
        for binding in vhost.bindings:
            if binding.source == name:
                (waiting.append if binding.to_exchange else found.add)(binding.destination)
    return found


def is_lettered(queue: Queue) -> bool:
    return "x-dead-letter-exchange" in queue.arguments


def random_message(random: Random, body: bytes) -> Message:
    exchange = random.choice(("", *EXCHANGES, *EXCHANGES))
    keys = QUEUES if exchange == "" else KEYS
    more = tuple(random.sample(keys, random.choice((0, 0, 0, 1))))
    hidden = tuple(random.sample(keys, random.choice((0, 0, 0, 1))))
    return Message(
        body,
        exchange,
        random.choice(keys),
        {**random.choice(MATCHES), **({"CC": list(more)} if more else {}), **({"BCC": list(hidden)} if hidden else {})},
        more,
        hidden,
        priority=random.randrange(5),
        expires=random.random() < 0.1,
    )
