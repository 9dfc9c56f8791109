"""Five auto-ack consumers over backlogs of 20 MB, none of them read, and a publish on the same connection.

Its confirm must come.
"""

import time

from rig import Broker, penstock, run

CONSUMERS, BODY, COUNT = 5, bytes(2_000), 10_000
SECONDS = 8.0


def check():
    with Broker() as broker:
        broker.start()
        queues = [f"backlog-{number}" for number in range(CONSUMERS)]
        transient = penstock.Properties(delivery_mode=penstock.TRANSIENT)
        with penstock.connect(broker.uri, durability="os") as connection:
            connection.declare_queue("answers")
            for queue in queues:
                connection.declare_queue(queue)
                connection.publish_many([BODY] * COUNT, routing_key=queue, properties=transient)
        connection = penstock.connect(broker.uri, durability="os", timeout=SECONDS)
        consumers = [connection.consume(queue, auto_ack=True) for queue in queues]
        time.sleep(2)
        began = time.monotonic()
        try:
            connection.publish(b"answer", routing_key="answers")
            answer = "confirmed"
        except penstock.PenstockError as error:
            answer = f"{type(error).__name__}: {error}"
        took = time.monotonic() - began
        with penstock.connect(broker.uri) as other:
            stored = other.admin.get_queue("answers").ready_count
        broker.kill()
        del consumers
    return (
        answer != "confirmed",
        f"publish beside {CONSUMERS} unread auto-ack consumers after {took:.1f} s: {answer}; {stored} stored",
    )


run(check)
