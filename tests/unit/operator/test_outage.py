"""An API server that does not answer: each failure is a retry, and the log has one line for all of them."""

import logging
import threading
import time
from types import SimpleNamespace
from typing import Any, cast

import pytest
import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from penstock_operator.engine import Backlog, Key, Workers
from penstock_operator.links import ApiError, Kubernetes
from penstock_operator.links.counts import Counts
from penstock_operator.links.outage import Outage

POOL = cast(urllib3.HTTPSConnectionPool, None)
FAILURES = [
    urllib3.exceptions.MaxRetryError(POOL, "/api", ConnectionRefusedError()),
    urllib3.exceptions.ReadTimeoutError(POOL, "/api", "read timed out"),
    urllib3.exceptions.ProtocolError("connection broken"),
    ConnectionResetError("reset"),
    ApiException(status=503, reason="unavailable"),
    ApiException(status=429, reason="too many requests"),
]


class Api:
    """The client's REST layer: it raises what it is given, and answers without."""

    def __init__(self) -> None:
        self.failure: Exception | None = None

    def param_serialize(self, *about: Any, **more: Any) -> tuple[Any, ...]:
        return ()

    def call_api(self, *request: Any, **more: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        return SimpleNamespace(status=200, read=lambda: b"{}")


def connected(api: Api, outage: Outage | None = None) -> Kubernetes:
    return Kubernetes(cast(client.ApiClient, api), Counts(), outage or Outage(time.monotonic))


def read(kubernetes: Kubernetes) -> None:
    kubernetes.read("v1", "Secret", "default", "mq")


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: type(failure).__name__)
def test_a_request_without_an_answer_is_one_kind_of_error(failure: Exception) -> None:
    api = Api()
    api.failure = failure

    with pytest.raises(ApiError) as caught:
        read(connected(api))

    assert caught.value.is_outage


def test_a_refusal_is_no_outage() -> None:
    api = Api()
    api.failure = ApiException(status=403, reason="forbidden")

    with pytest.raises(ApiError) as caught:
        read(connected(api))

    assert not caught.value.is_outage


def test_an_outage_is_one_line_and_its_end_another(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    api, now = Api(), 0.0
    kubernetes = connected(api, Outage(lambda: now))
    for failure in FAILURES:
        api.failure = failure
        with pytest.raises(ApiError):
            read(kubernetes)
    now = 45.0
    api.failure = None
    read(kubernetes)
    read(kubernetes)

    assert [record.getMessage().partition(":")[0] for record in caplog.records] == [
        "the API server does not answer; retrying",
        "the API server answers again after 45 s",
    ]


def test_requests_that_fail_now_and_then_are_not_logged_each_time(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    outage = Outage(lambda: now)
    for now in range(20):  # noqa: B007 - the clock
        outage.began("slow")
        outage.ended()

    assert caplog.text.count("does not answer") == 1


def test_failed_requests_of_the_watches_are_the_same_outage(caplog: pytest.LogCaptureFixture) -> None:
    log = logging.getLogger("tests.watches")
    outage = Outage(time.monotonic)
    log.addFilter(outage)
    for attempt in range(1, 5):
        log.error("Request attempt #%s/9 failed; will retry: GET /api -> ClientConnectorError()", attempt)
    log.error("Request attempt #1/9 failed; will retry: GET /api -> APIForbiddenError('forbidden')")
    log.error("something else")

    assert [record.getMessage()[:15] for record in caplog.records] == [
        "the API server ",
        "Request attempt",
        "something else",
    ]


def test_workers_retry_every_object_and_log_no_line_for_each(caplog: pytest.LogCaptureFixture) -> None:
    api, done = Api(), threading.Event()
    api.failure = FAILURES[1]
    kubernetes, tried = connected(api), set[Key]()

    def reconcile(key: Key, attempts: int) -> float | None:
        tried.add(key)
        if attempts >= 1 and len(tried) == 20:
            done.set()
        read(kubernetes)
        return None

    workers = Workers(Backlog(), reconcile, Counts(), 2)
    for number in range(20):
        workers.add(Key("Queue", "default", f"queue-{number}"))
    workers.start()
    assert done.wait(10)
    workers.stop(5)

    assert "bug" not in caplog.text
    assert "Traceback" not in caplog.text
    assert len(caplog.records) == 1
