"""One connection asks with 300 wrong passwords at a time.

Meanwhile twenty users log in for the first time, each on a connection of their own. Before that, in quiet, failures
must show in a counter and in the log.
"""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from issuer import status_code
from rig import GUEST, Broker, administration, credentials, run

from penstock.v1 import admin_pb2 as admin

USERS, OUTSTANDING, SECONDS, LINES_MAX = 20, 300, 3.0, 50


def figures(broker):
    lines = broker.get("/metrics")[1].splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if line.startswith("penstock_")}


def check():
    with Broker() as broker:
        broker.start()
        with broker.channel() as channel:
            for number in range(USERS):
                request = admin.PutUserRequest(name=f"user{number}", password=f"right{number}")
                administration(channel).PutUser(request, metadata=GUEST)

        before, size = figures(broker), len(broker.log)
        with broker.channel() as guessing:
            for number in range(USERS):
                wrong = credentials("guest", f"wrong{number}")
                # The broker closes a connection after ten of them; a call that meets the end is made again.
                while status_code(broker, wrong, 30, guessing) == "UNAVAILABLE":
                    time.sleep(0.1)
        time.sleep(0.5)
        moved = [name for name, value in figures(broker).items() if value >= before.get(name, 0) + USERS]
        counters = [name for name in moved if "log_in" in name]
        quiet_lines = len(broker.log[size:].splitlines())

        over, flood, size = threading.Event(), broker.channel(), len(broker.log)
        answered = [0]

        def guess(number):
            tries = 0
            while not over.is_set():
                tries += 1
                status_code(broker, credentials("guest", f"wrong-{number}-{tries}"), 30, flood)
                answered[0] += 1

        for number in range(OUTSTANDING):
            threading.Thread(target=guess, args=(number,), daemon=True).start()
        time.sleep(3)

        def log_in(number):
            began = time.monotonic()
            code = status_code(broker, credentials(f"user{number}", f"right{number}"), 15)
            return code, time.monotonic() - began

        with ThreadPoolExecutor(USERS) as pool:
            ends = list(pool.map(log_in, range(USERS)))
        over.set()
        lines = len(broker.log[size:].splitlines())
    in_time = sum(code == "OK" and took <= SECONDS for code, took in ends)
    codes = ", ".join(f"{[code for code, _ in ends].count(each)} {each}" for each in sorted({code for code, _ in ends}))
    is_there = in_time < USERS or not counters or not quiet_lines or lines > LINES_MAX
    return is_there, (
        f"{in_time} of {USERS} right log-ins within {SECONDS:.0f} s beside {OUTSTANDING} outstanding wrong ones "
        f"({codes}, slowest {max(took for _, took in ends):.1f} s); {USERS} failures in quiet move {len(counters)} "
        f"counters and write {quiet_lines} log lines, the flood's {answered[0]} guesses write {lines}"
    )


run(check)
