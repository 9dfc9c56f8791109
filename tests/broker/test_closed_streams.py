"""Commands whose standard output or error was closed by the process that started them."""

import os
import subprocess
from pathlib import Path

import pytest

import penstock
from support import Broker
from support.broker import free_ports, penstock_command
from support.waiting import eventually


def test_a_command_without_standard_output_does_its_work(broker: Broker) -> None:
    command = f"exec {penstock_command()} queue declare unseen --uri {broker.uri()} >&-"

    done = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, text=True, timeout=30, check=False)

    assert (done.returncode, done.stderr) == (0, "")
    with penstock.connect(broker.uri()) as connection:
        assert connection.admin.get_queue("unseen").name == "unseen"


def test_an_output_that_cannot_be_written_is_reported_in_words(broker: Broker) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [penstock_command(), "exchange", "list", "--uri", broker.uri()],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert (done.returncode, done.stderr) == (1, "penstock: no space left on device\n")


@pytest.mark.slow
def test_a_broker_without_standard_streams_gives_their_numbers_to_no_file(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    uri = f"penstock://guest:guest@127.0.0.1:{port}/"
    command = (
        f"exec {penstock_command()} serve --data-dir {tmp_path / 'data'} --grpc 127.0.0.1:{port} --metrics off"
        " <&- >&- 2>&-"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    with subprocess.Popen(["sh", "-c", command], env=environment) as broker:
        try:
            eventually(lambda: answers(uri), True, 60)
            files = [str(Path(f"/proc/{broker.pid}/fd/{number}").readlink()) for number in range(3)]
            broker.terminate()
            assert broker.wait(60) == 0
        finally:
            broker.kill()

    assert files == ["/dev/null"] * 3


def answers(uri: str) -> bool:
    try:
        penstock.connect(uri).close()
    except penstock.ConnectionLostError:
        return False
    return True
