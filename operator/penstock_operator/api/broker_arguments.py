"""Arguments of queues and exchanges and keys of policies, with schemas of their values.

They are those of the broker's table. Others are passed on to the broker, which refuses unsupported ones.
"""
# Generated from penstock/metadata/argument_table.py by `make crds`; edit that file instead.

from typing import Any, Final, Literal, TypeAlias

ExchangeType: TypeAlias = Literal[
    "direct",
    "fanout",
    "topic",
    "headers",
    "x-consistent-hash",
    "x-modulus-hash",
    "x-random",
    "x-local-random",
    "x-delayed-message",
    "x-recent-history",
]
QUEUE: Final[dict[str, dict[str, Any]]] = {
    "x-durability": {
        "description": "Durability: what a confirm of the queue's messages promises.",
        "type": "string",
        "enum": ["os", "disk"],
    },
    "x-dedicated": {"description": "The queue has a log of its own.", "type": "boolean"},
    "x-max-age": {
        "description": "The stream drops older messages.",
        "type": "string",
        "maxLength": 16,
        "pattern": "^[0-9]+[YMDhms]$",
    },
    "x-max-length": {
        "description": "The number of messages that makes the queue full.",
        "type": "integer",
        "minimum": 0,
        "maximum": 4611686018427387904,
    },
    "x-max-length-bytes": {
        "description": "The bytes of bodies that make the queue full; a stream drops its oldest messages beyond "
        "this size.",
        "type": "integer",
        "minimum": 1,
        "maximum": 4611686018427387904,
    },
    "x-overflow": {
        "description": "Whether a full queue drops its oldest messages, the default, or refuses new ones (-dlx: "
        "dead letters).",
        "type": "string",
        "enum": ["drop-head", "reject-publish", "reject-publish-dlx"],
    },
    "x-expires": {
        "description": "The queue is deleted when it was unused for so long.",
        "type": "integer",
        "minimum": 1,
        "maximum": 3155760000000,
    },
    "x-message-ttl": {
        "description": "The queue drops messages that it has had for so long.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "x-dead-letter-exchange": {
        "description": "The exchange for messages that leave the queue without an ack.",
        "type": "string",
        "maxLength": 255,
    },
    "x-dead-letter-routing-key": {
        "description": "Their routing key; without it they keep theirs.",
        "type": "string",
        "maxLength": 255,
    },
    "x-dead-letter-strategy": {
        "description": "Whether a message that no queue takes is dropped, or stays and is tried again.",
        "type": "string",
        "enum": ["at-most-once", "at-least-once"],
    },
    "x-delivery-limit": {
        "description": "How often a message may come back after a delivery; then it leaves the queue.",
        "type": "integer",
        "minimum": -1,
        "maximum": 2147483646,
    },
    "x-delayed-retry-type": {
        "description": "Which messages that come back wait before they are ready again.",
        "type": "string",
        "enum": ["disabled", "all", "failed", "returned"],
    },
    "x-delayed-retry-min": {
        "description": "How long they wait for each of their deliveries.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "x-delayed-retry-max": {
        "description": "How long they wait at most.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "x-retry-backoff": {
        "description": "How long they wait after each delivery instead; the last number repeats.",
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "items": {"type": "integer", "minimum": 0, "maximum": 3155760000000},
    },
    "x-max-priority": {
        "description": "The queue delivers messages of a higher priority first, up to this one; it cannot change.",
        "type": "integer",
        "minimum": 0,
        "maximum": 255,
    },
    "x-fair-key": {
        "description": "The header whose values take turns in delivery.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "x-single-active-consumer": {
        "description": "One consumer at a time gets messages; when it leaves, the next one does.",
        "type": "boolean",
    },
    "x-consumer-timeout": {
        "description": "The broker ends a consumer that keeps a message unsettled for longer, and returns its "
        "messages.",
        "type": "integer",
        "minimum": 1,
        "maximum": 3155760000000,
    },
    "x-message-deduplication": {
        "description": "Whether repeated messages are confirmed and not stored.",
        "type": "boolean",
    },
    "x-deduplication-header": {
        "description": "The header by which repetitions are recognized, else 'x-deduplication-header'.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "x-cache-size": {
        "description": "How many values of that header are remembered, else 128.",
        "type": "integer",
        "minimum": 1,
        "maximum": 1000000,
    },
    "x-cache-ttl": {
        "description": "For how long they are remembered, unless newer ones need the place before.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
}
STREAM: Final[dict[str, dict[str, Any]]] = {
    "x-durability": {
        "description": "Durability: what a confirm of the queue's messages promises.",
        "type": "string",
        "enum": ["os", "disk"],
    },
    "x-message-deduplication": {
        "description": "Whether repeated messages are confirmed and not stored.",
        "type": "boolean",
    },
    "x-deduplication-header": {
        "description": "The header by which repetitions are recognized, else 'x-deduplication-header'.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "x-cache-size": {
        "description": "How many values of that header are remembered, else 128.",
        "type": "integer",
        "minimum": 1,
        "maximum": 1000000,
    },
    "x-cache-ttl": {
        "description": "For how long they are remembered, unless newer ones need the place before.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
}
EXCHANGE: Final[dict[str, dict[str, Any]]] = {
    "alternate-exchange": {
        "description": "The exchange for messages that match no binding.",
        "type": "string",
        "maxLength": 255,
    },
    "x-alternate-exchange": {
        "description": "The exchange for messages that match no binding.",
        "type": "string",
        "maxLength": 255,
    },
    "x-delayed-type": {
        "description": "The type by which the exchange routes; required.",
        "type": "string",
        "maxLength": 255,
    },
    "x-delayed-exchange": {
        "description": "The exchange delays messages with the header 'x-delay', as one of type 'x-delayed-message'"
        " does.",
        "type": "boolean",
    },
    "x-message-deduplication": {
        "description": "Whether repeated messages are confirmed and not stored.",
        "type": "boolean",
    },
    "x-deduplication-header": {
        "description": "The header by which repetitions are recognized, else 'x-deduplication-header'.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "x-cache-size": {
        "description": "How many values of that header are remembered, else 128.",
        "type": "integer",
        "minimum": 1,
        "maximum": 1000000,
    },
    "x-cache-ttl": {
        "description": "For how long they are remembered, unless newer ones need the place before.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "x-algorithm": {"description": "How the hash chooses a binding.", "type": "string", "enum": ["ring", "jump"]},
    "hash-header": {
        "description": "The header that is hashed instead of the routing key.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "x-hash-on": {
        "description": "The header that is hashed instead of the routing key.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "hash-property": {
        "description": "The property that is hashed instead of the routing key.",
        "type": "string",
        "enum": ["message_id", "correlation_id", "timestamp"],
    },
}
POLICY: Final[dict[str, dict[str, Any]]] = {
    "durability": {
        "description": "Durability: what a confirm of the queue's messages promises.",
        "type": "string",
        "enum": ["os", "disk"],
    },
    "max-age": {
        "description": "The stream drops older messages.",
        "type": "string",
        "maxLength": 16,
        "pattern": "^[0-9]+[YMDhms]$",
    },
    "max-length": {
        "description": "The number of messages that makes the queue full.",
        "type": "integer",
        "minimum": 0,
        "maximum": 4611686018427387904,
    },
    "max-length-bytes": {
        "description": "The bytes of bodies that make the queue full; a stream drops its oldest messages beyond "
        "this size.",
        "type": "integer",
        "minimum": 1,
        "maximum": 4611686018427387904,
    },
    "overflow": {
        "description": "Whether a full queue drops its oldest messages, the default, or refuses new ones (-dlx: "
        "dead letters).",
        "type": "string",
        "enum": ["drop-head", "reject-publish", "reject-publish-dlx"],
    },
    "expires": {
        "description": "The queue is deleted when it was unused for so long.",
        "type": "integer",
        "minimum": 1,
        "maximum": 3155760000000,
    },
    "message-ttl": {
        "description": "The queue drops messages that it has had for so long.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "dead-letter-exchange": {
        "description": "The exchange for messages that leave the queue without an ack.",
        "type": "string",
        "maxLength": 255,
    },
    "dead-letter-routing-key": {
        "description": "Their routing key; without it they keep theirs.",
        "type": "string",
        "maxLength": 255,
    },
    "dead-letter-strategy": {
        "description": "Whether a message that no queue takes is dropped, or stays and is tried again.",
        "type": "string",
        "enum": ["at-most-once", "at-least-once"],
    },
    "delivery-limit": {
        "description": "How often a message may come back after a delivery; then it leaves the queue.",
        "type": "integer",
        "minimum": -1,
        "maximum": 2147483646,
    },
    "delayed-retry-type": {
        "description": "Which messages that come back wait before they are ready again.",
        "type": "string",
        "enum": ["disabled", "all", "failed", "returned"],
    },
    "delayed-retry-min": {
        "description": "How long they wait for each of their deliveries.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "delayed-retry-max": {
        "description": "How long they wait at most.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
    "retry-backoff": {
        "description": "How long they wait after each delivery instead; the last number repeats.",
        "type": "array",
        "minItems": 1,
        "maxItems": 100,
        "items": {"type": "integer", "minimum": 0, "maximum": 3155760000000},
    },
    "fair-key": {
        "description": "The header whose values take turns in delivery.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "consumer-timeout": {
        "description": "The broker ends a consumer that keeps a message unsettled for longer, and returns its "
        "messages.",
        "type": "integer",
        "minimum": 1,
        "maximum": 3155760000000,
    },
    "alternate-exchange": {
        "description": "The exchange for messages that match no binding.",
        "type": "string",
        "maxLength": 255,
    },
    "delayed-message": {
        "description": "The exchange delays messages with the header 'x-delay', as one of type 'x-delayed-message'"
        " does.",
        "type": "boolean",
    },
    "message-deduplication": {
        "description": "Whether repeated messages are confirmed and not stored.",
        "type": "boolean",
    },
    "deduplication-header": {
        "description": "The header by which repetitions are recognized, else 'x-deduplication-header'.",
        "type": "string",
        "maxLength": 255,
        "minLength": 1,
    },
    "cache-size": {
        "description": "How many values of that header are remembered, else 128.",
        "type": "integer",
        "minimum": 1,
        "maximum": 1000000,
    },
    "cache-ttl": {
        "description": "For how long they are remembered, unless newer ones need the place before.",
        "type": "integer",
        "minimum": 0,
        "maximum": 3155760000000,
    },
}
