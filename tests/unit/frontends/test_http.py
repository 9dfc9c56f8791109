"""Health and metrics, without a socket: the application's own handlers."""

import asyncio
import json

import pytest
from aiohttp.test_utils import make_mocked_request
from aiohttp.web import HTTPUnauthorized

from penstock.frontends.http import HttpFrontend, MetricsPage
from penstock.services.ports import VhostTotals
from support.grpc_fakes import FakeNode


def get(path, node=None, not_started="", names="all", token="", headers=None):
    node = node or FakeNode()
    frontend = HttpFrontend(node, lambda: not_started, MetricsPage(node, names, token))

    async def run():
        request = make_mocked_request("GET", path, headers=headers)
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
    assert 'penstock_vhost_shards{vhost="/"} 1.0' in page
    assert 'penstock_vhost_shards{vhost="odd \\"one\\""} 2.0' in page
    assert 'penstock_shard_messages_ready{shard="0",vhost="odd \\"one\\""} 1.0' in page
    assert 'penstock_shard_messages_unacked{shard="1",vhost="odd \\"one\\""} 2.0' in page
    assert 'penstock_shard_messages_ready{shard="0",vhost="/"}' not in page, "it has one shard"
    assert 'penstock_lock_wait_seconds_total{vhost="/"} 0.5' in page
    assert 'penstock_stream_first_offset{partition="clicks-0",vhost="/"} 5.0' in page
    assert 'penstock_stream_next_offset{partition="clicks-0",vhost="/"} 9.0' in page
    assert 'penstock_stream_group_lag{group="billing",partition="clicks-0",vhost="/"} 3.0' in page
    assert "penstock_stream_partitions_not_shown 7.0" in page
    assert "penstock_stream_groups_not_shown 1.0" in page
    assert 'penstock_build_info{version="1.2.3"} 1.0' in page
    assert 'penstock_certificate_not_after_timestamp_seconds{certificate="server.crt"} 1.8e+09' in page
    assert "process_resident_memory_bytes" in page


def test_metrics_name_no_partition_and_no_group_unless_the_settings_say_so():
    page = get("/metrics", names="vhost").body.decode()

    assert "clicks" not in page
    assert "billing" not in page
    assert 'penstock_queue_messages_ready{vhost="/"} 20.0' in page
    assert "penstock_stream_partitions_not_shown 8.0" in page
    assert "penstock_stream_groups_not_shown 2.0" in page


def test_metrics_without_names_add_up_all_virtual_hosts():
    page = get("/metrics", names="off").body.decode()

    assert "odd" not in page
    assert 'penstock_queue_messages_ready{vhost=""} 21.0' in page
    assert 'penstock_vhost_shards{vhost=""} 3.0' in page
    assert 'penstock_lock_wait_seconds_total{vhost=""} 0.75' in page
    assert "penstock_shard_messages_ready{" not in page


@pytest.mark.parametrize("authorization", ["", "Bearer wrong", "Basic secret", "secret", "Bearer sécret"])
def test_a_scrape_without_the_token_is_refused(authorization):
    headers = {"Authorization": authorization} if authorization else {}

    with pytest.raises(HTTPUnauthorized):
        get("/metrics", token="secret", headers=headers)


def test_a_scrape_with_the_token_is_answered_and_health_needs_none():
    assert get("/metrics", token="secret", headers={"Authorization": "Bearer secret"}).status == 200
    assert get("/health/ready", token="secret").status == 200


def test_a_scrape_costs_the_same_with_many_queues():
    class Busy(FakeNode):
        def vhost_totals(self):
            return [VhostTotals(f"v{number}", 10_000, 1, 1) for number in range(10)]

    assert len(get("/metrics", Busy()).body) < 15_000


def test_a_scrape_reads_figures_when_it_is_asked_and_not_before():
    class Counting(FakeNode):
        count = 0

        def metrics(self):
            self.count += 1
            return {}

    node = Counting()
    HttpFrontend(node, str, MetricsPage(node))
    assert node.count == 0
    get("/metrics", node)
    assert node.count == 1
