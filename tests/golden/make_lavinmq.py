"""Writes `tests/golden/lavinmq`, a LavinMQ data directory made by hand from the layout of its files.

Run `PYTHONPATH=tests python tests/golden/make_lavinmq.py`. It is committed; `tests/broker/test_import.py` knows its
content: 12,000 messages in two queues, of which 2,000 are acknowledged. `lavinmq-2.9.1.tgz` beside it is a directory
that LavinMQ wrote, and `lavinmq-2.9.1.expected.json.gz` its content as LavinMQ reported it.
"""

import base64
import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import bcrypt

from support.lavinmq import (
    LavinVhost,
    all_properties,
    bound,
    exchange,
    message,
    queue,
    queue_deleted,
    write_directory,
)

TARGET = Path(__file__).parent / "lavinmq"
TIME_MS = 1_760_000_000_000
ORDERS, AUDIT = 8_000, 4_000


def orders() -> Iterator[bytes]:
    for number in range(ORDERS):
        key = f"order.{number % 3}"
        if number % 100 == 0:
            headers = {"number": number, "nested": {"list": [1, "two", None, True]}, "share": number / 8}
            yield message(TIME_MS + number, "shop", key, f"order {number}".encode(), all_properties(headers, number))
        else:
            yield message(TIME_MS + number, "shop", key, f"order {number}".encode())


def audit() -> Iterator[bytes]:
    for number in range(AUDIT):
        yield message(TIME_MS + number, "", "audit", number.to_bytes(4, "little"))


def digest(kind: str, password: str) -> str:
    return base64.b64encode(b"salt" + hashlib.new(kind, b"salt" + password.encode()).digest()).decode()


def users() -> list[dict[str, object]]:
    everything = {"config": ".*", "write": ".*", "read": ".*"}
    return [
        {
            "name": "root",
            "password_hash": digest("sha256", "golden"),
            "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": "administrator",
            "permissions": {"/": everything, "shop": everything},
        },
        {
            "name": "anna",
            "password_hash": bcrypt.hashpw(b"golden", b"$2a$04$abcdefghijklmnopqrstuu").decode(),
            "hashing_algorithm": "lavinmq_bcrypt",
            "tags": "",
            "permissions": {"shop": {"config": "^$", "write": "^shop$", "read": "orders"}},
        },
        {"name": "__direct", "password_hash": "", "hashing_algorithm": None, "tags": "", "permissions": {}},
    ]


def main() -> None:
    shutil.rmtree(TARGET, ignore_errors=True)
    TARGET.mkdir()
    write_directory(TARGET, users(), ["/", "shop"])
    root = LavinVhost(TARGET, "/")
    root.write_definitions(exchange("amq.topic", "topic"), queue("gone"), queue_deleted("gone"))
    shop = LavinVhost(TARGET, "shop")
    shop.write_definitions(
        exchange("shop", "topic"),
        exchange("unrouted", "fanout"),
        queue("orders"),
        queue("audit", {"x-queue-type": "classic"}),
        queue("passing", bits=0),
        bound("orders", "shop", "order.*"),
        bound("orders", "amq.headers", "", {"x-match": "any", "size": "large"}),
        bound("audit", "unrouted", ""),
    )
    shop.write_json(
        "policies",
        [
            {
                "name": "unrouted",
                "vhost": "shop",
                "pattern": "^shop$",
                "apply-to": "exchanges",
                "priority": 1,
                "definition": {"alternate-exchange": "unrouted"},
            }
        ],
    )
    shop.write_queue("orders", orders(), frozenset(range(1_000)) | frozenset(range(7_000, 7_500)))
    shop.write_queue("audit", audit(), frozenset(range(1, 1_000, 2)))


if __name__ == "__main__":
    main()
