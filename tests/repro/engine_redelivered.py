"""Messages that a consumer had before kill -9 must come back flagged redelivered.

Those that no consumer was ever sent must not count as delivered when the consumer that they were taken for leaves.
"""

import time

from rig import Broker, RawCall, penstock, run, wire

PATH = "/penstock.v1.MessagingService/Consume"


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection:
            connection.declare_queue("letters")
            connection.publish_many([b"%d" % number for number in range(100)], routing_key="letters")
            with connection.consume("letters", idle_timeout=3.0) as messages:
                had = sum(not message.redelivered for message in messages)
                broker.kill()
        broker.start()
        with penstock.connect(broker.uri) as connection:
            found = list(connection.consume("letters", idle_timeout=3.0))
            after = sum(message.redelivered for message in found)
            counted = sum(message.delivery_count > 0 for message in found)
            connection.declare_queue("unsent")
            connection.publish_many([bytes(10_000)] * 1_000, routing_key="unsent")
            opening = wire.ConsumeRequest(open=wire.ConsumeOpen(queue="unsent", prefetch=1000))
            call = RawCall(broker.port, PATH, opening, window=64)
            until = time.monotonic() + 60
            while connection.admin.get_queue("unsent").unacked_count < 1000 and time.monotonic() < until:
                time.sleep(0.05)
            taken = connection.admin.get_queue("unsent").unacked_count
            call.close()
            while connection.admin.get_queue("unsent").ready_count < 1000 and time.monotonic() < until:
                time.sleep(0.05)
            returned = list(connection.consume("unsent", idle_timeout=3.0))
            blamed = sum(message.redelivered for message in returned)
            blamed_counted = sum(message.delivery_count > 0 for message in returned)
    return after < had or blamed > 200, (
        f"{had} held by a consumer at kill -9: after it {after} of {len(found)} are flagged redelivered, {counted} "
        f"have a count; a consumer with a window of 64 bytes took {taken} messages of 10 kB, got {call.received} "
        f"bytes and left: {blamed} of {len(returned)} flagged redelivered, {blamed_counted} counted"
    )


run(check)
