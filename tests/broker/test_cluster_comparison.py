"""A record that is whole on the disk of a follower and is not the leader's is reported, and nothing is changed."""

import struct
from pathlib import Path
from typing import Final

import pytest

import penstock
from support.broker import Broker
from support.cluster_operator import run
from support.serving_cluster import NAMES, SECONDS_MAX, ServingCluster
from support.waiting import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
QUEUE: Final = "jobs"
BODIES: Final = [b"message %06d " % number + b"x" * 1000 for number in range(3000)]
POLYNOMIAL: Final = 0x82F63B78
HEADER_BYTES: Final = 64
PAYLOAD_CRC_AT, HEAD_CRC_AT, HEAD_AT = 16, 20, 24
CRC: Final = struct.Struct("<I")


def crc32c(content: bytes, crc: int = 0) -> int:
    crc ^= 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (POLYNOMIAL if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def change_with_checksums(broker: Broker, content: bytes) -> int:
    """Change a bit of a message in a file of a broker that runs, and its checksums. Return its position."""
    for path in sorted(broker.data_dir.glob("*/msgs.*")):
        segment = path.read_bytes()
        at = segment.find(content)
        if at >= 0:
            begin, end = record_of(segment, at)
            changed = bytearray(segment[begin:end])
            changed[at - begin] ^= 1
            with path.open("r+b", buffering=0) as file:
                file.seek(begin)
                file.write(with_checksums(segment, segment[begin:end], changed))
            return int(struct.unpack_from("<Q", segment, begin + 8)[0])
    raise AssertionError(f"{content!r} is in no segment")


def record_of(segment: bytes, at: int) -> tuple[int, int]:
    """Return where the record begins and ends that has a byte."""
    end = HEADER_BYTES
    while end <= at:
        begin, end = end, end + CRC.unpack_from(segment, end)[0]
    return begin, end


def with_checksums(segment: bytes, before: bytes, record: bytearray) -> bytes:
    """Return a record of a segment with the checksums of its bytes; `before` is the record as it was."""
    (stored,) = CRC.unpack_from(before, PAYLOAD_CRC_AT)
    payload_at = next(at for at in range(HEAD_AT, len(before)) if crc32c(before[at:]) == stored)
    CRC.pack_into(record, PAYLOAD_CRC_AT, crc32c(bytes(record[payload_at:])))
    log_id, epoch = segment[16:32], segment[48:56]
    head = log_id + epoch + record[:HEAD_CRC_AT] + record[HEAD_AT:payload_at]
    CRC.pack_into(record, HEAD_CRC_AT, crc32c(head))
    return bytes(record)


def test_a_record_of_a_follower_that_was_changed_with_its_checksums_is_reported_and_stays(tmp_path: Path) -> None:
    settings = tmp_path / "settings.toml"
    settings.write_text("cluster_scrub_hours = 0.0003\n")
    with ServingCluster(tmp_path, "--config", str(settings), shards=1) as cluster:
        with penstock.connect(cluster.brokers[NAMES[0]].uri()) as client:
            client.declare_queue(QUEUE)
            client.publish_many(BODIES, routing_key=QUEUE)
        cluster.until_all_in_sync()
        hit = next(name for name in NAMES if name != cluster.leader())
        other = next(name for name in NAMES if name not in (hit, cluster.leader()))

        position = change_with_checksums(cluster.brokers[hit], BODIES[42][:16])

        def shown() -> list[str]:
            lines = [line.split() for line in run(cluster, other, "status").stdout.splitlines()]
            return next((line[:4] for line in lines if len(line) == 5 and line[:2] == ["/", hit]), [])

        eventually(shown, ["/", hit, "1", str(position)], SECONDS_MAX)
        assert f'"position": {position}' in cluster.brokers[hit].log
        assert "penstock_replica_differing_records 1.0" in cluster.brokers[hit].scrape()
        for name in NAMES:
            assert "corrupt" not in cluster.brokers[name].log
            assert (name == hit) == ("differs from the leader's" in cluster.brokers[name].log)
