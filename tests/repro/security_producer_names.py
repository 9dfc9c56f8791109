"""A user who may write only to an exchange of their own publishes one message under another user's producer name.

What its owner publishes afterwards is confirmed and not stored.
"""

from rig import Broker, grpc, run
from stubs import GUEST, Stubs, basic, batch, confirmed, reasons

from penstock.v1 import streams_pb2

NAME = "a-loader"


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("anna", pattern="^a-.*")
        root.put_user("bob", pattern="^b-.*")
        anna, bob = (Stubs(broker.channel(), basic(name, "x")) for name in ("anna", "bob"))
        anna.declare("a-queue", "a-exchange")
        bob.declare("b-queue", "b-exchange")

        def publish(sequence):
            """Three of anna's."""
            rows = batch("", b"x", b"y", b"z", exchange="a-exchange", sequence=sequence)
            return anna.publish(rows, producer=NAME)

        answers = publish(1)
        if confirmed(answers) != 3 or root.counts("a-queue")[0] != 3:
            raise RuntimeError(f"anna cannot publish: {reasons(answers)}")
        seen = NAME in {one.name for one in bob.ListProducers(streams_pb2.ListProducersRequest()).producers}
        try:
            answers = bob.publish(batch("", b"x", exchange="b-exchange", sequence=2**64 - 1), producer=NAME)
            taken = "confirmed" if confirmed(answers) else f"rejected ({reasons(answers)})"
        except grpc.RpcError as refused:
            taken = f"refused with {refused.code().name}"
        count = confirmed(publish(4))
        stored = root.counts("a-queue")[0] - 3
    told = f"bob {'sees' if seen else 'does not see'} anna's name in ListProducers, and his message under it is {taken}"
    return stored != 3 or seen, f"{told}; of anna's next 3 messages {count} are confirmed and {stored} stored"


run(check)
