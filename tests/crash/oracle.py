"""What a virtual host of AMQP 0-9-1 does with messages, in a few lines and one message at a time: the oracle of a test.

It routes over exchanges and their alternates, keeps queues with priorities, limits and times, and moves dead letters at
once. A message that expires does so as soon as it is in a queue. It shares no code with the broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

EXPIRES_AT_ONCE = 1


class Death(NamedTuple):
    queue: str
    reason: str
    times: int


@dataclass(frozen=True)
class Message:
    body: bytes
    exchange: str
    key: str
    headers: Mapping[str, Any] = field(default_factory=dict)
    more_keys: tuple[str, ...] = ()
    """Of `CC`, which stays, then of `BCC`, which is not stored."""
    hidden_keys: tuple[str, ...] = ()
    priority: int = 0
    expires: bool = False
    deaths: tuple[Death, ...] = ()
    """The newest first."""
    first_death: tuple[str, str] | None = None
    delivered_count: int = 0


@dataclass(frozen=True)
class Binding:
    source: str
    destination: str
    to_exchange: bool
    key: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Exchange:
    kind: str
    alternate: str | None = None


@dataclass
class Queue:
    """A queue with the arguments of its declaration, and its messages from the head."""

    arguments: Mapping[str, Any]
    messages: list[Message] = field(default_factory=list)

    def put(self, message: Message) -> None:
        """Put a message behind those of its priority."""
        rank = self.rank(message)
        at = next((at for at, other in enumerate(self.messages) if self.rank(other) < rank), len(self.messages))
        self.messages.insert(at, message)

    def rank(self, message: Message) -> int:
        return min(message.priority, int(self.arguments.get("x-max-priority", 0)))

    @property
    def is_full(self) -> bool:
        return len(self.messages) >= self.length_max

    @property
    def length_max(self) -> int:
        return int(self.arguments.get("x-max-length", 2**31))

    @property
    def refuses(self) -> bool:
        return self.arguments.get("x-overflow") == "reject-publish"


@dataclass
class Vhost:
    exchanges: dict[str, Exchange] = field(default_factory=dict)
    queues: dict[str, Queue] = field(default_factory=dict)
    bindings: list[Binding] = field(default_factory=list)

    def publish(self, message: Message) -> tuple[bool, bool]:
        """Return whether a queue was found, and whether all that were found took the message."""
        found = self.routed(message)
        refused = [name for name in found if self.queues[name].is_full and self.queues[name].refuses]
        stored = replace(message, hidden_keys=())
        for name in sorted(found):
            if name not in refused:
                self._enqueue(name, stored)
        return bool(found), not refused

    def routed(self, message: Message) -> set[str]:
        """Return the queues that a message goes to."""
        found: set[str] = set()
        waiting, visited = [message.exchange], {message.exchange}
        while waiting:
            name = waiting.pop()
            if name == "":
                found |= {key for key in keys_of(message) if key in self.queues}
                continue
            matched = [one for one in self.bindings if one.source == name and self._matches(one, message)]
            alternate = self.exchanges[name].alternate
            found |= {one.destination for one in matched if not one.to_exchange}
            further = {one.destination for one in matched if one.to_exchange}
            if not matched and alternate is not None:
                further = {alternate}
            waiting += further - visited
            visited |= further
        return found

    def _matches(self, binding: Binding, message: Message) -> bool:
        match self.exchanges[binding.source].kind:
            case "direct":
                return binding.key in keys_of(message)
            case "topic":
                return any(topic_matches(binding.key.split("."), key.split(".")) for key in keys_of(message))
            case "headers":
                wanted = {name: value for name, value in binding.arguments.items() if name != "x-match"}
                equal = [message.headers.get(name) == value for name, value in wanted.items()]
                return any(equal) if binding.arguments["x-match"] == "any" else all(equal)
        return True

    def _enqueue(self, name: str, message: Message) -> None:
        queue = self.queues[name]
        queue.put(message)
        if len(queue.messages) > queue.length_max and not queue.refuses:
            self._leave(name, queue.messages[0], "maxlen")
        if message in queue.messages and (message.expires or "x-message-ttl" in queue.arguments):
            self._leave(name, message, "expired")

    def ack(self, name: str, message: Message) -> None:
        self.queues[name].messages.remove(message)

    def reject(self, name: str, message: Message) -> None:
        """Reject a message that was delivered, without requeueing it."""
        self._leave(name, message, "rejected")

    def return_to(self, name: str, message: Message) -> None:
        """Requeue a message that was delivered: it has its place again, unless it came back too often."""
        queue = self.queues[name]
        counted = replace(message, delivered_count=message.delivered_count + 1)
        queue.messages[queue.messages.index(message)] = counted
        if counted.delivered_count > queue.arguments.get("x-delivery-limit", 2**31):
            self._leave(name, counted, "delivery_limit")

    def _leave(self, name: str, message: Message, reason: str) -> None:
        """Move a message to the dead-letter exchange of its queue, or drop it where there is none."""
        queue = self.queues[name]
        queue.messages.remove(message)
        if "x-dead-letter-exchange" not in queue.arguments:
            return
        new_key = queue.arguments.get("x-dead-letter-routing-key")
        letter = replace(
            message,
            exchange=queue.arguments["x-dead-letter-exchange"],
            key=message.key if new_key is None else new_key,
            more_keys=message.more_keys if new_key is None else (),
            expires=False,
            deaths=tuple(with_death(message.deaths, name, reason)),
            first_death=message.first_death or (name, reason),
            delivered_count=0,
        )
        visited = {death.queue for death in unrejected(letter.deaths)}
        for target in sorted(self.routed(letter)):
            if target not in visited:
                self._enqueue(target, letter)


def keys_of(message: Message) -> tuple[str, ...]:
    return (message.key, *message.more_keys, *message.hidden_keys)


def topic_matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], words[at:]) for at in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_matches(pattern[1:], words[1:])


def with_death(deaths: Sequence[Death], queue: str, reason: str) -> Iterator[Death]:
    before = sum(death.times for death in deaths if death[:2] == (queue, reason))
    yield Death(queue, reason, before + 1)
    yield from (death for death in deaths if death[:2] != (queue, reason))


def unrejected(deaths: Sequence[Death]) -> Iterator[Death]:
    """Return the deaths since the last rejection: a dead letter does not go back to their queues."""
    for death in deaths:
        if death.reason == "rejected":
            return
        yield death
