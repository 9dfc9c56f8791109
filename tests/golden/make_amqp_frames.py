"""Writes golden bytes of AMQP 0-9-1 with pika, for `broker/rust/wire/tests/amqp_methods.rs`.

Run `python tests/golden/make_amqp_frames.py tests/golden/amqp-frames.txt`, with pika 1.3.2. Each line has a name and
the bytes of a frame in hexadecimal. Arguments have values that follow from their names, which the test knows, too.
"""

import inspect
import sys
from pathlib import Path
from typing import Any

import pika

CHANNEL = 7
RESERVED = {"ticket", "out_of_band", "insist", "capabilities", "known_hosts", "channel_id", "cluster_id"}


NUMBERS = {
    *("channel_max", "frame_max", "heartbeat", "version_major", "version_minor", "reply_code", "class_id", "method_id"),
    *("message_count", "consumer_count", "delivery_tag", "prefetch_size", "prefetch_count"),
}
BITS = {
    *("passive", "durable", "auto_delete", "internal", "nowait", "if_unused", "if_empty", "exclusive", "global_qos"),
    *("no_local", "no_ack", "mandatory", "immediate", "redelivered", "multiple", "requeue", "active"),
}


TABLES = {"client_properties", "server_properties", "arguments"}


def value(argument: str) -> object:
    """Return the value of an argument: texts are its name, numbers its length, and bits whether that is even."""
    if argument in BITS:
        return len(argument) % 2 == 0
    if argument in TABLES:
        return {argument: True}
    return len(argument) if argument in NUMBERS else argument


def instance(method: Any) -> Any:
    parameters = [name for name in inspect.signature(method.__init__).parameters if name != "self"]
    return method(**{name: value(name) for name in parameters if name not in RESERVED})


def methods() -> list[str]:
    lines = []
    for method in pika.spec.methods.values():
        if method.NAME.startswith("Access."):
            continue
        frame = pika.frame.Method(CHANNEL, instance(method))
        lines.append(f"{method.NAME} {frame.marshal().hex()}")
    return lines


def contents() -> list[str]:
    full = pika.BasicProperties(
        content_type="text/plain",
        content_encoding="gzip",
        headers={"text": "é", "number": 7, "large": 2**40, "list": [1, "a"], "table": {"yes": True}, "none": None},
        delivery_mode=2,
        priority=9,
        correlation_id="correlation",
        reply_to="reply",
        expiration="1000",
        message_id="message",
        timestamp=1_700_000_000,
        type="type",
        user_id="user",
        app_id="app",
    )
    return [
        f"header.full {pika.frame.Header(CHANNEL, 5, full).marshal().hex()}",
        f"header.empty {pika.frame.Header(CHANNEL, 0, pika.BasicProperties()).marshal().hex()}",
        f"body {pika.frame.Body(CHANNEL, b'hello').marshal().hex()}",
        f"heartbeat {pika.frame.Heartbeat().marshal().hex()}",
        f"protocol {pika.frame.ProtocolHeader().marshal().hex()}",
    ]


if __name__ == "__main__":
    Path(sys.argv[1]).write_text("\n".join([*methods(), *contents()]) + "\n")
