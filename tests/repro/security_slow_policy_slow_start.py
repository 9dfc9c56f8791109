"""A policy whose pattern took seconds, not for ever, was kept.

Every start took those seconds again for each queue that it was held against, and did not answer the probe of liveness
meanwhile. A start is counted in seconds, and in those of the processor, which other work does not change.
"""

import os
import threading
import time
from pathlib import Path

from rig import Broker, admin, run
from stubs import GUEST, Stubs, basic

QUEUES, LETTERS, SECONDS_MAX = 3, 34, 4.0


def spent(broker):
    """Seconds of the processor since the process began."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def started(broker):
    """Seconds that a start took, and those of the processor."""
    began = time.monotonic()
    broker.start()
    return time.monotonic() - began, spent(broker)


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("polly", tags=("policymaker",))
        polly = Stubs(broker.channel(), basic("polly", "x"))
        request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern="(aa|a)+$"))
        request.policy.definition["durability"].string_value = "disk"
        accepted = polly.code("SetPolicy", request)
        broker.kill()
        quick, quick_spent = started(broker)
        polly = Stubs(broker.channel(), basic("polly", "x"))
        for number in range(QUEUES):
            queue = admin.Queue(name="a" * LETTERS + f"b{number}", durable=True)
            polly.DeclareQueue(admin.DeclareQueueRequest(queue=queue), 40)
        broker.kill()
        silent = [0]
        is_ready = threading.Event()

        def probe():
            while not is_ready.is_set():
                silent[0] += broker.get("/health/live", 1)[0] != 200
                time.sleep(0.1)

        threading.Thread(target=probe, daemon=True).start()
        slow, slow_spent = started(broker)
        is_ready.set()
    is_slow = slow > quick + SECONDS_MAX or slow_spent > quick_spent + SECONDS_MAX
    return accepted == "OK" and is_slow, (
        f"a policymaker's (aa|a)+$ ends with {accepted}; with {QUEUES} queues of {LETTERS} letters a start takes "
        f"{slow:.1f} s, {slow_spent:.1f} s of the processor, {quick:.1f} s and {quick_spent:.1f} s without, and "
        f"{silent[0]} probes of /health/live have no answer"
    )


run(check)
