"""A policymaker sets policies whose patterns took for ever on names of queues and exchanges that are there. Everybody
else is answered meanwhile, the probe of liveness included."""

import threading
import time

from rig import Broker, admin, administration, credentials, grpc, run

# The first needs no queue: the exchanges that every virtual host has are enough.
PATTERNS = (
    "(?:(?:[a-z.]{0,16}){16}){16}!",
    "a?" * 30 + "a" * 30,
    "(aa|a)+$",
    "()?(?(1)(a+)+$|x)",
)
NAMES = ("a" * 29 + "b", "a" * 60 + "!")
SECONDS_MAX = 20


def code(method, request, metadata, seconds=60):
    try:
        method(request, metadata=metadata, timeout=seconds)
    except grpc.RpcError as refused:
        return refused.code().name
    return "OK"


def set_policy(stub, pattern, metadata, answers):
    request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern=pattern))
    request.policy.definition["level"].string_value = "disk"
    answers.append(code(stub.SetPolicy, request, metadata))


def check():
    guest, polly = credentials(), credentials("polly", "x")
    with Broker() as broker:
        broker.start()
        ours, theirs = administration(broker.channel()), administration(broker.channel())
        ours.PutUser(admin.PutUserRequest(name="polly", password="x", tags=["policymaker"]), metadata=guest)
        permission = admin.Permission(user="polly", vhost="/", configure=".*", write=".*", read=".*")
        ours.SetPermission(admin.SetPermissionRequest(permission=permission), metadata=guest)
        answers: list[grpc.StatusCode] = []
        for pattern in PATTERNS:
            if pattern is PATTERNS[1]:
                for name in NAMES:
                    queue = admin.Queue(name=name, durable=True)
                    ours.DeclareQueue(admin.DeclareQueueRequest(queue=queue), metadata=guest)
            thread = threading.Thread(target=set_policy, args=(theirs, pattern, polly, answers), daemon=True)
            thread.start()
            time.sleep(0.3)
            live, _ = broker.get("/health/live", SECONDS_MAX)
            status = code(ours.GetStatus, admin.GetStatusRequest(), guest, SECONDS_MAX)
            if live != 200 or status != "OK":
                return True, (
                    f"while a policymaker sets {pattern[:40]}, /health/live answers {live or 'nothing'} and GetStatus "
                    f"{status} in {SECONDS_MAX} s"
                )
            thread.join()
    if not {"OK", "INVALID_ARGUMENT"} >= set(answers):
        raise RuntimeError(f"the policies are answered {answers}")
    return False, f"GetStatus and /health/live answer while each of {len(PATTERNS)} costly patterns is set"


run(check)
