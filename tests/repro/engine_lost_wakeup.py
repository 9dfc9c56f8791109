"""Consumer A's window is full, consumer B is idle.

A message that is ready must come to B at once, not stay ready until another one is published.
"""

import contextlib
import threading
import time

from rig import Broker, RawCall, Stream, grpc, messaging, penstock, run, wire

PATH = "/penstock.v1.MessagingService/Consume"
ROUNDS, SECONDS = 4, 1.5


def opening():
    return wire.ConsumeRequest(open=wire.ConsumeOpen(queue="letters", prefetch=1000))


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection, broker.channel() as channel:
            connection.declare_queue("letters")
            full = RawCall(broker.port, PATH, opening(), window=64)
            _wait_for(lambda: connection.admin.get_queue("letters").consumer_count == 1)
            connection.publish(bytes(500), routing_key="letters")  # what fills the window
            _wait_for(lambda: connection.admin.get_queue("letters").unacked_count == 1)
            time.sleep(0.3)
            arrived: dict[bytes, float] = {}
            idle = Stream(messaging(channel).Consume, opening())

            def take():
                with contextlib.suppress(grpc.RpcError):
                    for response in idle:
                        arrived.update((delivery.body, True) for delivery in response.deliveries.deliveries)

            threading.Thread(target=take, daemon=True).start()
            _wait_for(lambda: connection.admin.get_queue("letters").consumer_count == 2)
            time.sleep(0.3)
            late, stuck = 0, 0
            for number in range(ROUNDS):
                body = b"letter-%d" % number
                connection.publish(body, routing_key="letters")
                time.sleep(SECONDS)
                if body not in arrived:
                    late += 1
                    stuck = max(stuck, connection.admin.get_queue("letters").ready_count)
            idle.call.cancel()
            full.close()
    return late > 0, (
        f"{late} of {ROUNDS} messages were not with the idle consumer {SECONDS} s after their confirm; "
        f"{stuck} ready then beside it"
    )


def _wait_for(is_so, seconds=60):
    until = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > until:
            raise RuntimeError("what the test needs did not come about")
        time.sleep(0.05)


run(check)
