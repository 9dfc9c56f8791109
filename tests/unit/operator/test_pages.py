"""Lists of Kubernetes come in pages: all of them make one list, and a list that ends in the middle is none."""

from typing import Any, cast

import pytest
from kubernetes import client

from penstock_operator.links import ApiError, Kubernetes
from penstock_operator.links.counts import Counts
from penstock_operator.links.outage import Outage

Query = list[tuple[str, str]]


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
