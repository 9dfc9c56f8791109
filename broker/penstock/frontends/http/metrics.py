"""The broker's figures for Prometheus: read from the engine when they are scraped, never kept.

No series per queue, so that a scrape costs the same with ten queues and with a hundred thousand; of streams, a bounded
number.
"""

import hmac
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.services.ports import Node, StreamTotals, VhostTotals

# Name in the engine -> (name here without `_total`, what it says). Order is that of the page.
COUNTERS: dict[str, tuple[str, str]] = {
    "published_total": ("penstock_messages_published", "Messages stored."),
    "published_bytes_total": ("penstock_published_bytes", "Bytes of the bodies of messages stored."),
    "confirmed_total": ("penstock_messages_confirmed", "Messages confirmed to publishers."),
    "returned_total": ("penstock_messages_returned", "Mandatory messages that reached no queue."),
    "delivered_total": ("penstock_messages_delivered", "Deliveries, including redeliveries."),
    "delivered_bytes_total": ("penstock_delivered_bytes", "Bytes of the bodies delivered."),
    "settled_total": ("penstock_messages_settled", "Messages acknowledged or rejected."),
    "expired_total": ("penstock_messages_expired", "Messages that expired, or that retention removed from streams."),
    "overflow_dropped_total": ("penstock_messages_dropped", "Oldest messages that full queues dropped."),
    "overflow_refused_total": ("penstock_messages_refused", "Messages that full queues refused."),
    "deduplicated_total": (
        "penstock_messages_deduplicated",
        "Messages confirmed and not stored because a queue or an exchange had seen their ids.",
    ),
    "dead_lettered_rejected_total": (
        "penstock_messages_dead_lettered_rejected",
        "Rejected messages moved to queues of a dead-letter exchange.",
    ),
    "dead_lettered_expired_total": (
        "penstock_messages_dead_lettered_expired",
        "Expired messages moved to queues of a dead-letter exchange.",
    ),
    "dead_lettered_maxlen_total": (
        "penstock_messages_dead_lettered_maxlen",
        "Messages of queues over their length moved to queues of a dead-letter exchange.",
    ),
    "dead_lettered_delivery_limit_total": (
        "penstock_messages_dead_lettered_delivery_limit",
        "Messages delivered too often that were moved to queues of a dead-letter exchange.",
    ),
    "dead_letters_dropped_total": (
        "penstock_dead_letters_dropped",
        "Dead letters dropped because no queue took them, or to end a cycle.",
    ),
    "log_bytes_written_total": ("penstock_log_bytes_written", "Bytes written to logs."),
    "corrupt_records_total": ("penstock_corrupt_records", "Corrupt records found; their messages are dropped."),
    "compaction_bytes_total": ("penstock_compaction_bytes", "Bytes written by compaction."),
    "compactions_given_up_total": (
        "penstock_compactions_given_up",
        "Compactions given up because of corrupt bytes or a disk error; their segments stay unchanged.",
    ),
    "tls_failures_total": ("penstock_tls_failures", "TLS handshakes that failed."),
    "log_ins_refused_total": ("penstock_log_ins_refused", "Log-ins with wrong credentials."),
    "log_ins_undecided_total": (
        "penstock_log_ins_undecided",
        "Log-ins not decided because too many waited or an HTTP back end did not answer.",
    ),
    "connections_refused_total": ("penstock_connections_refused", "Connections refused because of connections_max."),
    "streams_refused_total": ("penstock_streams_refused", "Streams refused because of a user's limit."),
    "publish_pauses_total": ("penstock_publish_pauses", "Pauses of publishers because of a limit."),
    "delivery_pauses_total": ("penstock_delivery_pauses", "Pauses of consumers because of a limit."),
    "connections_too_slow_total": (
        "penstock_connections_too_slow",
        "Connections whose client took too long to log in or, over AMQP, to enter a virtual host.",
    ),
    "buffer_waits_total": (
        "penstock_buffer_waits",
        "Times that a request or a response waited for memory below buffer_bytes_max.",
    ),
    "connections_closed_for_buffers_total": (
        "penstock_connections_closed_for_buffers",
        "Connections closed because others waited too long for the memory that they held.",
    ),
    "relay_sent_bytes_total": (
        "penstock_relay_sent_bytes",
        "Bytes sent to other brokers for relayed clients.",
    ),
    "relay_received_bytes_total": (
        "penstock_relay_received_bytes",
        "Bytes received from other brokers for relayed clients.",
    ),
    "log_lines_dropped_total": (
        "penstock_log_lines_dropped",
        "Lines of the broker's log dropped because they could not be written, audit lines included.",
    ),
    "syncs_total": ("penstock_syncs", "Syncs of logs."),
    "sync_seconds_total": ("penstock_sync_seconds", "Seconds spent syncing logs."),
}
GAUGES: dict[str, tuple[str, str]] = {
    "connections": ("penstock_connections", "Open connections."),
    "consumers": ("penstock_consumers", "Consumers."),
    "readers": ("penstock_readers", "Readers of streams."),
    "buffer_limit_bytes": ("penstock_buffer_limit_bytes", "Maximum bytes of requests and responses in memory."),
    "buffer_request_bytes": ("penstock_buffer_request_bytes", "Bytes of requests that are not stored or answered yet."),
    "buffer_response_bytes": ("penstock_buffer_response_bytes", "Bytes of responses that wait for clients."),
    "buffer_unauthenticated_bytes": (
        "penstock_buffer_unauthenticated_bytes",
        "Bytes from unauthenticated clients, without the first 16 KiB of each connection.",
    ),
    "relays": ("penstock_relays", "Relayed connections from and to this broker."),
    "differing_records": (
        "penstock_replica_differing_records",
        "Records of this broker's replicas with another checksum than those of their leaders, at the last comparison.",
    ),
    "dedicated_logs": ("penstock_dedicated_logs", "Queues with a dedicated log."),
    "quarantined_segments": ("penstock_quarantined_segments", "Log segments with corrupt records."),
    "disk_full": ("penstock_disk_full", "1 while publishers are refused because the disk is full."),
    "disk_free_bytes": ("penstock_disk_free_bytes", "Free bytes on the disk of the data directory."),
    "segments": ("penstock_log_segments", "Segment files."),
    "mapped_bytes": ("penstock_log_mapped_bytes", "Bytes of segments mapped into memory."),
}


Names: TypeAlias = Literal["off", "vhost", "all"]
"""Names that are labels: none, those of virtual hosts, or also those of partitions and groups."""

PARTITION_GAUGES: tuple[tuple[str, str], ...] = (
    ("penstock_stream_first_offset", "First offset of the partition."),
    ("penstock_stream_next_offset", "Offset of the next message."),
    ("penstock_stream_bytes", "Bytes of the partition's messages."),
    ("penstock_stream_readers", "Readers."),
)


class BrokerCollector(Collector):
    """Asks the node each time."""

    def __init__(self, node: Node, names: Names) -> None:
        self._node = node
        self._names = names

    def describe(self) -> Iterator[Metric]:
        """Nothing, so that registering does not scrape."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        metrics = self._node.metrics()
        for key, (name, text) in COUNTERS.items():
            yield CounterMetricFamily(name, text, value=metrics.get(key, 0.0))
        for key, (name, text) in GAUGES.items():
            yield GaugeMetricFamily(name, text, value=metrics.get(key, 0.0))
        yield from self._vhosts()
        yield from self._streams()
        state = self._node.state()
        yield InfoMetricFamily("penstock_build", "The broker's version.", value={"version": state.version})
        yield GaugeMetricFamily("penstock_uptime_seconds", "Time since the start.", value=state.uptime_seconds)
        yield GaugeMetricFamily(
            "penstock_recovery_seconds",
            "Seconds that the last start needed to read the logs.",
            value=state.recovery.ms / 1_000,
        )
        yield _expiries(state.expiries)

    def _vhosts(self) -> Iterator[Metric]:
        queues = GaugeMetricFamily("penstock_queues", "Queues.", labels=["vhost"])
        ready = GaugeMetricFamily(
            "penstock_queue_messages_ready", "Messages ready for delivery, without streams.", labels=["vhost"]
        )
        unacked = GaugeMetricFamily("penstock_queue_messages_unacked", "Unacked messages.", labels=["vhost"])
        shards = GaugeMetricFamily("penstock_vhost_shards", "Logs that queues share.", labels=["vhost"])
        waits = CounterMetricFamily(
            "penstock_lock_wait_seconds", "Seconds that threads waited for locks of logs.", labels=["vhost"]
        )
        totals = self._node.vhost_totals()
        by_shard = [vhost for vhost in totals if len(vhost.shards) > 1 and self._names != "off"]
        if self._names == "off":
            # A label without a value is no label.
            queue_count, ready_count = (
                sum(each.queue_count for each in totals),
                sum(each.ready_count for each in totals),
            )
            unacked_count = sum(each.unacked_count for each in totals)
            every_shard = tuple(shard for each in totals for shard in each.shards)
            wait_seconds = sum(each.lock_wait_seconds for each in totals)
            totals = [VhostTotals("", queue_count, ready_count, unacked_count, every_shard, wait_seconds)]
        for vhost in totals:
            queues.add_metric([vhost.name], vhost.queue_count)
            ready.add_metric([vhost.name], vhost.ready_count)
            unacked.add_metric([vhost.name], vhost.unacked_count)
            shards.add_metric([vhost.name], len(vhost.shards))
            waits.add_metric([vhost.name], vhost.lock_wait_seconds)
        yield from (queues, ready, unacked, shards, waits)
        yield from _messages_by_shard(by_shard)

    def _streams(self) -> Iterator[Metric]:
        totals = self._node.stream_totals()
        if self._names != "all":
            left_out = totals.partitions_left_out + len(totals.partitions)
            groups_left_out = totals.groups_left_out + len(totals.groups)
            totals = StreamTotals(partitions_left_out=left_out, groups_left_out=groups_left_out)
        gauges = [GaugeMetricFamily(name, text, labels=["vhost", "partition"]) for name, text in PARTITION_GAUGES]
        for each in totals.partitions:
            figures = (each.first_offset, each.next_offset, each.bytes, each.reader_count)
            for gauge, figure in zip(gauges, figures, strict=True):
                gauge.add_metric([each.vhost, each.partition], figure)
        lag = GaugeMetricFamily(
            "penstock_stream_group_lag",
            "Messages after the group's stored offset.",
            labels=["vhost", "partition", "group"],
        )
        for group in totals.groups:
            lag.add_metric([group.vhost, group.partition, group.group], group.lag)
        yield from (*gauges, lag)
        for what, count in (("partitions", totals.partitions_left_out), ("groups", totals.groups_left_out)):
            text = f"The number of {what} without a series."
            yield GaugeMetricFamily(f"penstock_stream_{what}_not_shown", text, value=count)


def _messages_by_shard(vhosts: Sequence[VhostTotals]) -> tuple[Metric, Metric]:
    """Return the messages in each shard of virtual hosts that have several."""
    labels = ["vhost", "shard"]
    ready = GaugeMetricFamily(
        "penstock_shard_messages_ready", "Messages ready for delivery in a shard, without streams.", labels=labels
    )
    unacked = GaugeMetricFamily("penstock_shard_messages_unacked", "Unacked messages in a shard.", labels=labels)
    for vhost in vhosts:
        for number, shard in enumerate(vhost.shards):
            ready.add_metric([vhost.name, str(number)], shard.ready_count)
            unacked.add_metric([vhost.name, str(number)], shard.unacked_count)
    return ready, unacked


def _expiries(expiries: Mapping[str, float]) -> Metric:
    """Return a series for each certificate that is served; no series without TLS."""
    gauge = GaugeMetricFamily(
        "penstock_certificate_not_after_timestamp_seconds",
        "When the certificate or one of its chain expires, in seconds since 1970.",
        labels=["certificate"],
    )
    for file, expiry in expiries.items():
        gauge.add_metric([file], expiry)
    return gauge


class MetricsPage:
    """The page in Prometheus' text format, for whoever shows the token if there is one."""

    def __init__(self, node: Node, names: Names = "vhost", token: str = "") -> None:
        self._token = token
        self._registry = CollectorRegistry()
        self._registry.register(BrokerCollector(node, names))
        ProcessCollector(registry=self._registry)

    def admits(self, authorization: str) -> bool:
        scheme, _, token = authorization.partition(" ")
        is_right = hmac.compare_digest(token.strip().encode(), self._token.encode())
        return not self._token or (scheme.lower() == "bearer" and is_right)

    def content(self) -> bytes:
        return generate_latest(self._registry)
