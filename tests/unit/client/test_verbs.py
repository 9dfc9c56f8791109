"""The public verbs: administration stands apart, both forms agree, and each says what it does."""

import inspect
from collections.abc import Iterator

import pytest

from penstock import aio, client
from penstock.client.admin import Admin
from penstock.client.aio_admin import AsyncAdmin
from penstock.client.aio_stage import AsyncStage
from penstock.client.aio_stream import AsyncStream, AsyncStreamPublisher
from penstock.client.consuming import AsyncConsumption, Consumption
from penstock.client.reading import AsyncStreamReader, StreamReader
from penstock.client.stage import Stage
from penstock.client.stream import Stream, StreamPublisher

PAIRS = [
    (client.Connection, aio.Connection),
    (Admin, AsyncAdmin),
    (Stage, AsyncStage),
    (Stream, AsyncStream),
    (StreamPublisher, AsyncStreamPublisher),
    (Consumption, AsyncConsumption),
    (StreamReader, AsyncStreamReader),
]
CLASSES = [each for pair in PAIRS for each in pair]


def verbs(kind: type) -> Iterator[str]:
    return (name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_"))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: f"{kind.__module__}.{kind.__name__}")
def test_every_public_verb_has_a_docstring(kind: type) -> None:
    assert [name for name in verbs(kind) if not (getattr(kind, name).__doc__ or "").strip()] == []


@pytest.mark.parametrize("pair", PAIRS[:4], ids=lambda pair: pair[0].__name__)
def test_both_forms_have_the_same_verbs_with_the_same_parameters(pair: tuple[type, type]) -> None:
    threads, loop = pair

    assert sorted(verbs(threads)) == sorted(verbs(loop))
    differing = [
        name
        for name in verbs(threads)
        if inspect.signature(getattr(threads, name)).parameters != inspect.signature(getattr(loop, name)).parameters
    ]
    assert differing == []


def test_administration_is_not_among_the_verbs_of_a_connection() -> None:
    both = set(verbs(client.Connection)) & set(verbs(Admin))

    assert both == set()
    assert {"list_queues", "put_user", "set_policy", "backup", "create_vhost"} <= set(verbs(Admin))
    assert {"declare_queue", "delete_queue", "purge_queue", "bind_queue", "publish"} <= set(verbs(client.Connection))
