"""One connection asks with 300 wrong passwords at a time. Meanwhile twenty users log in for the first time, each on a
connection of their own. Before that, in quiet, failures must show in a counter and in the log."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

from issuer import status_code
from rig import GUEST, Broker, administration, credentials, run

from penstock.v1 import admin_pb2 as admin

USERS, OUTSTANDING, LINES_MAX = 20, 300, 50


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
                status_code(broker, credentials("guest", f"wrong{number}"), 30, guessing)
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
        before_log_ins = answered[0]
        with ThreadPoolExecutor(USERS) as pool:
            right = [credentials(f"user{number}", f"right{number}") for number in range(USERS)]
            codes = list(pool.map(lambda one: status_code(broker, one, 60), right))
        guesses = answered[0] - before_log_ins
        over.set()
        lines = len(broker.log[size:].splitlines())
    got_in = codes.count("OK")
    is_there = got_in < USERS or not counters or not quiet_lines or lines > LINES_MAX
    return is_there, (
        f"{got_in} of {USERS} right log-ins got in beside {OUTSTANDING} outstanding wrong ones, of which {guesses} "
        f"were answered meanwhile; {USERS} failures in quiet move {len(counters)} counters and write {quiet_lines} log "
        f"lines, the flood writes {lines}"
    )


run(check)
