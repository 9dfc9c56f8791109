"""Health and metrics, without a socket: the application's own handlers."""

import asyncio
import json

import pytest
from aiohttp.test_utils import make_mocked_request

from penstock.frontends.http import HttpFrontend
from penstock.services.ports import VhostTotals
from support.grpc_fakes import FakeNode


def get(path, node=None, not_started=""):
    frontend = HttpFrontend(node or FakeNode(), lambda: not_started)

    async def run():
        request = make_mocked_request("GET", path)
        match = await frontend.application().router.resolve(request)
        return await match.handler(request)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("path", "not_started", "status", "reason"),
    [
        ("/health/startup", "", 200, None),
        ("/health/startup", "the broker is starting", 503, "the broker is starting"),
        ("/health/ready", "", 200, None),
        ("/health/live", "", 503, "a disk failed"),
    ],
)
def test_a_probe_is_told_the_reason(path, not_started, status, reason):
    response = get(path, not_started=not_started)

    assert response.status == status
    assert json.loads(response.text).get("reason") == reason


def test_the_metrics_page_has_the_engines_figures():
    response = get("/metrics")
    page = response.body.decode()

    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert "penstock_messages_published_total 11.0" in page
    assert "penstock_connections 2.0" in page
    assert "penstock_syncs_total 5.0" in page
    assert 'penstock_queue_messages_ready{vhost="/"} 20.0' in page
    assert 'penstock_queue_messages_ready{vhost="odd \\"one\\""} 1.0' in page
    assert 'penstock_stream_first_offset{partition="clicks-0",vhost="/"} 5.0' in page
    assert 'penstock_stream_next_offset{partition="clicks-0",vhost="/"} 9.0' in page
    assert 'penstock_stream_group_lag{group="billing",partition="clicks-0",vhost="/"} 3.0' in page
    assert "penstock_stream_partitions_not_shown 7.0" in page
    assert "penstock_stream_groups_not_shown 1.0" in page
    assert 'penstock_build_info{version="1.2.3"} 1.0' in page
    assert "process_resident_memory_bytes" in page


def test_a_scrape_costs_the_same_with_many_queues():
    class Busy(FakeNode):
        def vhost_totals(self):
            return [VhostTotals(f"v{number}", 10_000, 1, 1) for number in range(10)]

    assert len(get("/metrics", Busy()).body) < 10_000


def test_a_scrape_reads_figures_when_it_is_asked_and_not_before():
    class Counting(FakeNode):
        count = 0

        def metrics(self):
            self.count += 1
            return {}

    node = Counting()
    HttpFrontend(node, str)
    assert node.count == 0
    get("/metrics", node)
    assert node.count == 1
