"""A user publishes with another's name in the property user_id; consumers see it as if the broker had checked it."""

from rig import Broker, run, wire
from stubs import GUEST, Stubs, basic, batch, confirmed


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("anna")
        root.declare("q")
        anna = Stubs(broker.channel(), basic("anna", "x"))
        count = confirmed(anna.publish(batch("q", b"x", user_id="guest")))
        found = root.Get(wire.GetRequest(queue="q", auto_ack=True)).deliveries
    shown = found[0].properties.user_id if found else "nothing"
    return (
        count > 0,
        f"anna's message with user_id 'guest' is {'confirmed' if count else 'refused'}; delivered: {shown!r}",
    )


run(check)
