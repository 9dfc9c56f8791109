"""A server of a coordinator whose pages never end is one that cannot be read: the watch waits before it lists again."""

import asyncio
import base64
from collections.abc import Mapping
from typing import Any, cast

import pytest

from penstock.cluster.api import JsonApi, Reply
from penstock.cluster.coordinator import UnreachableError
from penstock.cluster.etcd import EtcdCoordinator
from penstock.cluster.kubernetes import KubernetesCoordinator

PAGES_MAX = 50
KEY = base64.b64encode(b"penstock/shards/a").decode()


class SamePage(JsonApi):
    """A client of a server that sends the same page again and again."""

    def __init__(self, page: Mapping[str, Any]) -> None:
        super().__init__(["http://127.0.0.1:1"])
        self.page = page
        self.count = 0

    async def ask(self, _method: str, _path: str, _body: object = None, *, kind: str = "application/json") -> Reply:
        assert kind == "application/json"
        self.count += 1
        assert self.count < PAGES_MAX
        return Reply(200, self.page)


@pytest.mark.parametrize(
    ("kind", "page"),
    [
        ("etcd", {"header": {"revision": "7"}, "kvs": [{"key": KEY, "value": ""}], "more": True}),
        ("kubernetes", {"metadata": {"resourceVersion": "7", "continue": "again"}, "items": []}),
    ],
)
def test_pages_that_do_not_go_on_are_refused(kind: str, page: Mapping[str, Any]) -> None:
    api = SamePage(page)
    coordinator: Any = EtcdCoordinator([]) if kind == "etcd" else KubernetesCoordinator(api, "default", "mq")
    source = cast(Any, coordinator)._watch._source
    source._api = api

    with pytest.raises(UnreachableError, match="sent an answer that is not"):
        asyncio.run(source.listed())

    assert api.count == 2
