"""A disk that fails under a running broker: health reports it, and a start on a sound disk has all messages.

The kernel is told to refuse the process's writes beyond an offset in a file. To the broker the disk has failed.
"""

import resource
from pathlib import Path
from urllib.error import HTTPError

import pytest

import penstock
from penstock.client.errors import PenstockError
from support import Broker, eventually

pytestmark = pytest.mark.slow
# The broker's own log stays below it, the messages' log is beyond it before the limit is set.
FILE_BYTES_MAX = 64 * 1024
BODY = bytes(1_000)
COUNT = 200


def health(broker: Broker) -> str:
    """Return the complaint of /health/live; empty when the broker is alive."""
    try:
        broker.scrape("/health/live")
    except HTTPError as error:
        return error.read().decode()
    return ""


def test_a_disk_that_fails_is_told_and_a_start_has_what_was_confirmed(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        with penstock.connect(broker.uri(), timeout=5) as connection:
            connection.declare_queue("jobs")
            connection.publish_many([BODY] * COUNT, routing_key="jobs")
            assert health(broker) == ""

            resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, resource.RLIM_INFINITY))
            with pytest.raises(PenstockError):
                connection.publish(BODY, routing_key="jobs")

            eventually(lambda: "vhost '/' has stopped: " in health(broker), True)
            eventually(lambda: broker.log.count("repair the disk, then restart the broker"), 1)
        broker.kill()
        broker.start()

        with penstock.connect(broker.uri()) as connection:
            assert connection.admin.get_queue("jobs").ready_count == COUNT
            connection.publish(BODY, routing_key="jobs")
            assert health(broker) == ""
