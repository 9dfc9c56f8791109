"""What deletes and purges, log-ins, a newer token, and what a policy sets are looked for in the log of audits."""

import json
import threading
import time

from issuer import EVERYTHING, Issuer
from rig import Broker, admin, run, wire
from stubs import GUEST, Stubs, batch

from penstock.v1 import streams_pb2 as streams


def check():
    issuer = Issuer()
    with Broker(env=issuer.settings(log_format="json")) as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.declare("q", "e")
        root.publish(batch("q", b"x"))
        root.DeclareStream(streams.DeclareStreamRequest(name="flow"))
        policy = admin.SetPolicyRequest(policy=admin.Policy(name="p", pattern="^none$"))
        policy.policy.definition["alternate-exchange"].string_value = "told-in-full"
        binding = admin.Binding(source="e", destination="q")
        done = {
            "PurgeQueue": admin.PurgeQueueRequest(name="q"),
            "Unbind": admin.UnbindRequest(binding=binding),
            "DeleteExchange": admin.DeleteExchangeRequest(name="e"),
            "DeleteQueue": admin.DeleteQueueRequest(name="q"),
            "DeleteStream": streams.DeleteStreamRequest(name="flow"),
            "SetPolicy": policy,
        }
        codes = {name: root.code(name, request) for name, request in done.items()}
        anna = Stubs(broker.channel(), "Bearer " + issuer.token(60, EVERYTHING))
        over = threading.Event()

        def opening():
            yield wire.PublishRequest(open=wire.PublishOpen())
            over.wait(20)

        stream = anna.Publish(opening())
        for _ in range(50):
            codes["RefreshToken"] = anna.code("RefreshToken", admin.RefreshTokenRequest())
            if codes["RefreshToken"] == "OK":
                break
            time.sleep(0.1)
        over.set()
        stream.cancel()
        time.sleep(0.5)
        found = [json.loads(line) for line in broker.log.splitlines() if line.startswith("{")]
        # Earlier versions said `room` for `logger`.
        told = {each["event"] for each in found if "audit" in (each.get("logger"), each.get("room"))}
    missing = [name for name in codes if name not in told]
    if "told-in-full" not in json.dumps(found):
        missing.append("a policy's definition")
    if not any("log" in str(event).lower() and "in" in str(event).lower() for event in told):
        missing.append("log-ins")
    sentence = f"the audit log has {', '.join(sorted(told)) or 'nothing'} and lacks {', '.join(missing) or 'nothing'}"
    return bool(missing), f"{sentence} ({', '.join(sorted(set(codes.values())))})"


run(check)
