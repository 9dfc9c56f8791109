"""Log-ins that are refused because too many wait wrote two warnings each.

The warnings had no bound, and their advice was wrong.
"""

import threading
import time

from issuer import status_code
from rig import Broker, credentials, run

OUTSTANDING, SECONDS, LINES_MAX = 400, 8.0, 50


def check():
    with Broker() as broker:
        broker.start()
        channel, over = broker.channel(), threading.Event()
        before = len(broker.log)

        def guess(number):
            tries = 0
            while not over.is_set():
                tries += 1
                status_code(broker, credentials("nobody", f"{number}-{tries}"), 30, channel)

        for number in range(OUTSTANDING):
            threading.Thread(target=guess, args=(number,), daemon=True).start()
        time.sleep(SECONDS)
        over.set()
        added = broker.log[before:]
    lines = added.splitlines()
    advice = "; they advise to restart the broker" if "retry after the broker has been restarted" in added else ""
    return len(lines) > LINES_MAX, (
        f"clients without a right password on one connection write {len(lines)} lines, {len(added) >> 10} KiB, "
        f"into the log in {SECONDS:.0f} s{advice}"
    )


run(check)
