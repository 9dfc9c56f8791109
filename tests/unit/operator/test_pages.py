"""Lists of Kubernetes come in pages: all of them make one list, and a list that ends in the middle is none."""

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kubernetes import client

from penstock_operator.links import ApiError, Kubernetes
from penstock_operator.links.counts import Counts
from penstock_operator.links.outage import Outage

Query = list[tuple[str, str]]


class Answering(Kubernetes):
    """An API server whose answers are these bytes."""

    def __init__(self, answer: bytes) -> None:
        api = SimpleNamespace(
            param_serialize=lambda *_, **__: (),
            call_api=lambda *_, **__: SimpleNamespace(status=200, read=lambda: answer),
        )
        super().__init__(cast(client.ApiClient, api), Counts(), Outage(lambda: 0.0))


class Paged(Kubernetes):
    """An API server that lists five objects in pages of two; the token of a page may expire."""

    def __init__(self, *, expires: bool = False) -> None:
        super().__init__(cast(client.ApiClient, None), Counts(), Outage(lambda: 0.0))
        self.queries: list[dict[str, str]] = []
        self._expires = expires

    def _call(self, verb: str, path: str, query: Query, *_: Any, **__: Any) -> dict[str, Any]:
        self.queries.append(dict(query))
        begin = int(dict(query).get("continue", 0))
        if begin and self._expires:
            raise ApiError(410, "the continue token is too old")
        items = [{"metadata": {"name": f"q{number}"}} for number in range(begin, min(begin + 2, 5))]
        return {"items": items, "metadata": {"continue": str(begin + 2)} if begin + 2 < 5 else {}}


def test_all_pages_make_one_list() -> None:
    kubernetes = Paged()

    found = kubernetes.list("penstock.dev/v1alpha1", "Queue", None, "team=shop")

    assert [each["metadata"]["name"] for each in found] == ["q0", "q1", "q2", "q3", "q4"]
    assert {(each["apiVersion"], each["kind"]) for each in found} == {("penstock.dev/v1alpha1", "Queue")}
    assert [each.get("continue") for each in kubernetes.queries] == [None, "2", "4"]
    assert 'penstock_operator_reads_total{kind="Queue",verb="list"} 3.0' in kubernetes.counts.exposition().decode()
    assert all(each["labelSelector"] == "team=shop" for each in kubernetes.queries)


def test_a_list_that_ends_in_the_middle_is_none() -> None:
    with pytest.raises(ApiError, match="too old"):
        Paged(expires=True).list("penstock.dev/v1alpha1", "Queue", None)


@pytest.mark.parametrize(
    "answer", [b"", b"{}", b"<html>sign in</html>", b'{"items": [{"metadata"', b"[]", b'{"kind": "Status"}']
)
def test_an_answer_that_is_no_list_is_not_an_empty_one(answer: bytes) -> None:
    """Objects that a list lacks are taken for gone."""
    with pytest.raises(ApiError) as caught:
        Answering(answer).list("penstock.dev/v1alpha1", "Queue", None)

    assert caught.value.is_outage


# Go decodes 10,000 levels; what a watch cannot read ends the watch, and what a census cannot read ends the start.
DEEP = """
import json, threading
from penstock_operator.__main__ import accept_deep_manifests
accept_deep_manifests()
text = '{"a":' * 10_000 + "1" + "}" * 10_000
json.loads(text)
found = []
thread = threading.Thread(target=lambda: found.append(json.loads(text)))
thread.start()
thread.join()
assert found
"""


def test_a_manifest_as_deep_as_the_api_server_takes_can_be_read_by_every_thread() -> None:
    path = os.pathsep.join(each for each in sys.path if each)
    subprocess.run([sys.executable, "-c", DEEP], check=True, env={**os.environ, "PYTHONPATH": path})
