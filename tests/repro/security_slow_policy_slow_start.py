"""A policy whose pattern took seconds, not for ever, was kept: every start took those seconds again for each queue that
it was held against. What a start costs is counted in seconds of the processor, which other work does not change."""

import os
from pathlib import Path

from rig import Broker, admin, administration, credentials, run

QUEUES, LETTERS, SECONDS_MAX = 3, 34, 4.0


def spent(broker):
    """Seconds of the processor since the process began."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def check():
    guest, polly = credentials(), credentials("polly", "x")
    with Broker() as broker:
        broker.start()
        root = administration(broker.channel())
        root.PutUser(admin.PutUserRequest(name="polly", password="x", tags=["policymaker"]), metadata=guest)
        permission = admin.Permission(user="polly", vhost="/", configure=".*", write=".*", read=".*")
        root.SetPermission(admin.SetPermissionRequest(permission=permission), metadata=guest)
        request = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern="(aa|a)+$"))
        request.policy.definition["level"].string_value = "disk"
        root.SetPolicy(request, metadata=polly)
        broker.kill()
        broker.start()
        quick = spent(broker)
        root = administration(broker.channel())
        for number in range(QUEUES):
            queue = admin.Queue(name="a" * LETTERS + f"b{number}", durable=True)
            root.DeclareQueue(admin.DeclareQueueRequest(queue=queue), metadata=polly, timeout=90)
        broker.kill()
        broker.start()
        slow = spent(broker)
    return slow > quick + SECONDS_MAX, (
        f"with a policymaker's (aa|a)+$ and {QUEUES} queues of {LETTERS} letters a start takes {slow:.1f} s of the "
        f"processor, {quick:.1f} s without the queues"
    )


run(check)
