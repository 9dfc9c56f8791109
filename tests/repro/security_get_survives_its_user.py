"""Messages that Get took stay with a connection whose user was deleted.

Another user on the same connection settles them.
"""

import time

from rig import Broker, admin, run, wire
from stubs import GUEST, Stubs, basic, batch

from penstock.v1 import message_pb2

COUNT = 1_000
SECONDS = 20.0


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("anna")
        root.put_user("bob")
        root.declare("q")
        root.publish(batch("q", *[b"x"] * COUNT))
        shared = broker.channel()
        anna, bob = Stubs(shared, basic("anna", "x")), Stubs(shared, basic("bob", "x"))
        taken = anna.Get(wire.GetRequest(queue="q", count_max=COUNT)).deliveries
        settlement = wire.Settlement(outcome=wire.OUTCOME_ACK)
        settlement.ranges.append(message_pb2.Range(first=taken[0].sequence, last=taken[0].sequence))
        settled = bob.Settle(wire.SettleRequest(queue="q", settlement=settlement)).settled_count
        root.DeleteUser(admin.DeleteUserRequest(name="anna"))
        refused = anna.code("Get", wire.GetRequest(queue="q"))
        until = time.monotonic() + SECONDS
        while (counts := root.counts("q"))[0] == 0 and time.monotonic() < until:
            time.sleep(0.5)
        shared.close()
        time.sleep(1)
        after = root.counts("q")
    sentence = f"{counts[0]} ready and {counts[1]} unsettled up to {SECONDS:.0f} s after their taker was deleted"
    sentence += f" (their next call: {refused}); once the socket closes {after[0]} ready;"
    sentence += f" another user of the connection settled {settled} of the taker's messages"
    return counts[0] == 0 or settled > 0, sentence


run(check)
