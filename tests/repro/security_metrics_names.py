"""/metrics asks for no credentials and names the partitions and groups of streams."""

from rig import Broker, run
from stubs import GUEST, Stubs, batch

from penstock.v1 import streams_pb2 as streams


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.DeclareStream(streams.DeclareStreamRequest(name="merger-with-acme"))
        root.publish(batch("merger-with-acme", b"x"))
        request = streams.StoreOffsetRequest(partition="merger-with-acme", group="legal-department", offset=0)
        root.StoreOffset(request)
        status, page = broker.get("/metrics")
    if not status:
        raise RuntimeError(page)
    names = [name for name in ("merger-with-acme", "legal-department") if name in page]
    lines = [line for line in page.splitlines() if "legal-department" in line][:1]
    return bool(names), f"a stranger reads these names of 2: {', '.join(names) or 'none'} {' '.join(lines)}".strip()


run(check)
