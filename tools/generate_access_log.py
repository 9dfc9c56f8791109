"""Writes examples/access.log: a day of an invented web shop in the common log format, the same bytes every time.

It has no real traffic: addresses are from the blocks reserved for documentation, paths and sizes come from a seeded
generator.
"""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeVar

LINE_COUNT = 12_000
START = datetime(2026, 3, 2, tzinfo=UTC)
ADDRESSES = ("192.0.2.", "198.51.100.", "203.0.113.")
REQUESTS = {
    "GET /": 20,
    "GET /login": 4,
    "POST /login": 3,
    "GET /search?q={word}": 14,
    "GET /items/{number}": 30,
    "GET /img/{number}.webp": 25,
    "POST /cart": 6,
    "PUT /cart/{small}": 3,
    "DELETE /cart/{small}": 2,
    "POST /orders": 3,
    "GET /orders/{number}": 4,
    "HEAD /health": 5,
}
STATUSES = {
    "GET": {200: 900, 304: 60, 404: 25, 500: 6, 503: 3},
    "HEAD": {200: 1},
    "POST": {201: 80, 302: 12, 401: 4, 409: 2, 500: 2, 502: 1},
    "PUT": {200: 95, 409: 4, 500: 1},
    "DELETE": {204: 96, 404: 3, 500: 1},
}
WORDS = ("lamp", "chair", "kettle", "rug", "desk", "mirror", "shelf", "clock")
Choice = TypeVar("Choice", str, int)


def lines(random: Random) -> list[str]:
    moments = sorted(random.triangular(0, 86_399, 70_000) for _ in range(LINE_COUNT))
    visitors = [random.choice(ADDRESSES) + str(random.randrange(1, 255)) for _ in range(300)]
    return [line(random, START + timedelta(seconds=int(moment)), random.choice(visitors)) for moment in moments]


def line(random: Random, moment: datetime, visitor: str) -> str:
    request = pick(random, REQUESTS).format(
        word=random.choice(WORDS), number=random.randrange(1_000, 9_999), small=random.randrange(1, 9)
    )
    status = pick(random, STATUSES[request.split()[0]])
    size = random.randrange(180, 48_000) if status == 200 and request.startswith("GET") else random.randrange(0, 180)
    return f'{visitor} - - [{moment:%d/%b/%Y:%H:%M:%S} +0000] "{request} HTTP/1.1" {status} {size}'


def pick(random: Random, weights: dict[Choice, int]) -> Choice:
    return random.choices(list(weights), weights=list(weights.values()))[0]


if __name__ == "__main__":
    target = Path(__file__).resolve().parent.parent / "examples" / "access.log"
    target.write_text("\n".join(lines(Random(20260302))) + "\n")
