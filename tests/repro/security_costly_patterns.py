"""A policymaker sets policies whose patterns took for ever on names of queues and exchanges that are there.

Everybody else is answered meanwhile, the probe of liveness included.
"""

import subprocess
import threading
import time

from rig import Broker, admin, grpc, run
from stubs import GUEST, Stubs, basic

# The first needs no queue: the exchanges that every virtual host has are enough.
PATTERNS = (
    "(?:(?:[a-z.]{0,16}){16}){16}!",
    "a?" * 30 + "a" * 30,
    "(aa|a)+$",
    "()?(?(1)(a+)+$|x)",
)
NAMES = ("a" * 29 + "b", "a" * 60 + "!")
SECONDS, SECONDS_SEEN = 2.0, 30.0


def policy(pattern):
    request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern=pattern))
    request.policy.definition["durability"].string_value = "disk"
    return request


def ends(broker):
    """Whether SIGTERM ends it within ten seconds."""
    broker.process.terminate()
    try:
        broker.process.wait(10)
    except subprocess.TimeoutExpired:
        return False
    return True


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("polly", tags=("policymaker",))
        polly = Stubs(broker.channel(), basic("polly", "x"))
        accepted = [polly.code("SetPolicy", policy(pattern)) for pattern in PATTERNS[1:]].count("OK")
        polly.code("DeletePolicy", admin.DeletePolicyRequest(name="p"))
        answers = []
        for pattern in PATTERNS:
            if pattern is PATTERNS[1]:
                for name in NAMES:
                    root.declare(name)

            def set_policy(pattern=pattern):
                answers.append(polly.code("SetPolicy", policy(pattern), 80))

            thread = threading.Thread(target=set_policy, daemon=True)
            thread.start()
            time.sleep(0.3)
            began = time.monotonic()
            live = broker.get("/health/live", SECONDS)[0] == 200
            try:
                root.GetStatus(admin.GetStatusRequest(), SECONDS_SEEN)
                status = "answers"
            except grpc.RpcError as refused:
                status = refused.code().name
            took = time.monotonic() - began
            if not live or took > SECONDS + 1:
                still = broker.get("/health/live", SECONDS)[0] == 200
                ended = ends(broker)
                return True, (
                    f"while a policymaker sets {pattern[:40]}, GetStatus: {status} after {took:.0f} s, /health/live "
                    f"{'answers' if live else 'silent'} at first and {'answers' if still else 'silent'} then, SIGTERM "
                    f"{'ends it' if ended else 'does not end it within 10 s'}; of the other three patterns {accepted} "
                    "are accepted"
                )
            thread.join()
    if not {"OK", "INVALID_ARGUMENT"} >= set(answers):
        raise RuntimeError(f"the policies are answered {answers}")
    return False, f"GetStatus and /health/live answer while each of {len(PATTERNS)} costly patterns is set"


run(check)
