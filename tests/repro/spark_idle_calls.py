"""A query on a stream to which nothing is published should wait at the broker, not ask it again and again.

Calls are counted by a proxy between Spark and the broker.
"""

import os
import socket
import struct
import threading
import time
from pathlib import Path

from rig import Broker, free_port, penstock, run
from sparkrig import session

SECONDS = 15
CALLS_A_SECOND_MAX = 5
PREFACE, HEADERS = 24, 1


class Counting:
    """Passes bytes on and counts the frames of HTTP/2 that begin a call."""

    def __init__(self, port):
        self.port, self._to, self.calls = free_port(), port, 0
        self._server = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            client, _ = self._server.accept()
            broker = socket.create_connection(("127.0.0.1", self._to))
            for each in (client, broker):  # else an answer waits 40 ms for the next packet
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._up, args=(client, broker), daemon=True).start()
            threading.Thread(target=self._down, args=(broker, client), daemon=True).start()

    def _up(self, client, broker):
        waiting, skipped = b"", False
        while data := client.recv(65536):
            broker.sendall(data)
            waiting += data
            if not skipped and len(waiting) >= PREFACE:
                waiting, skipped = waiting[PREFACE:], True
            while skipped and len(waiting) >= 9:
                length, kind = struct.unpack(">I", b"\0" + waiting[:3])[0], waiting[3]
                if len(waiting) < 9 + length:
                    break
                self.calls += kind == HEADERS
                waiting = waiting[9 + length :]
        broker.close()

    def _down(self, broker, client):
        try:
            while data := broker.recv(65536):
                client.sendall(data)
            client.close()
        except OSError:
            pass


def cpu_seconds(broker):
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check():
    with Broker() as broker, session() as (spark, folder):
        broker.start()
        return outcome(broker, spark, folder)


def outcome(broker, spark, folder):
    with penstock.connect(broker.uri, native=False) as connection:
        connection.declare_stream("quiet")
        connection.stream("quiet").publish(b"one")
    proxy = Counting(broker.port)
    time.sleep(3)
    before = cpu_seconds(broker)
    time.sleep(10)
    alone = (cpu_seconds(broker) - before) / 10
    uri = broker.uri.replace(str(broker.port), str(proxy.port))
    rows = spark.readStream.format("penstock").options(uri=uri, stream="quiet", startingOffsets="earliest").load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint")).start()
    until = time.monotonic() + 60
    while time.monotonic() < until and not any(each["numInputRows"] for each in query.recentProgress):
        time.sleep(0.2)
    time.sleep(2)
    calls, cpu, begun = proxy.calls, cpu_seconds(broker), time.monotonic()
    time.sleep(SECONDS)
    seconds = time.monotonic() - begun
    rate, load = (proxy.calls - calls) / seconds, (cpu_seconds(broker) - cpu) / seconds
    query.stop()
    return rate > CALLS_A_SECOND_MAX, (
        f"an idle query makes {rate:.0f} calls a second and takes {load * 100:.1f} % of a core in the broker, which "
        f"takes {alone * 100:.1f} % without it"
    )


run(check)
