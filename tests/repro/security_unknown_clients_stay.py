"""After one Health.Check without credentials nothing closes a connection.

Without credentials it may hold as many Health.Watch streams as it has streams.
"""

import time

from http2 import Wire
from rig import Broker, run

IDLE_SECONDS = 40.0
CONNECTIONS, WATCHES = 10, 1_000
WATCHES_MAX = 16


def check():
    with Broker(env={"PENSTOCK_FIRST_REQUEST_SECONDS": "2"}) as broker:
        broker.start()
        wires = [Wire(broker.port) for _ in range(2)]
        silent, checked = wires
        checked.request("/grpc.health.v1.Health/Check", "", b"")
        silent_s = silent.closes_within(10)
        checked_s = checked.closes_within(IDLE_SECONDS)
        before = broker.rss()
        watching, watchers = 0, []
        for _ in range(CONNECTIONS):
            one = Wire(broker.port)
            watchers.append(one)
            streams = set()
            for _ in range(WATCHES):
                try:
                    one.request("/grpc.health.v1.Health/Watch", "", b"")
                except OSError:
                    break
            for kind, flags, stream, _ in one.frames(2):
                if kind == 0 and not flags & 1:
                    streams.add(stream)
                elif flags & 1 or kind == 3:
                    streams.discard(stream)
                if len(streams) >= WATCHES:
                    break
            watching += len(streams)
        time.sleep(1)
        kib = (broker.rss() - before) / 1_024 / max(1, watching)
        for one in (*wires, *watchers):
            one.close()
    each = watching / CONNECTIONS
    silent_text, checked_text = (
        "stays" if seconds is None else f"is closed after {seconds:.1f} s" for seconds in (silent_s, checked_s)
    )
    sentence = f"a silent connection {silent_text}, one that asked Health.Check {checked_text} ({IDLE_SECONDS:.0f} s)"
    sentence += f"; anonymous Watches a connection: {each:.0f}, {kib:.1f} KiB of the broker each"
    return checked_s is None or each > WATCHES_MAX, sentence


run(check)
