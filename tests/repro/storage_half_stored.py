"""A named producer's message for more than 1,024 queues lies in several records.

The tail is torn after the first one, and the producer sends the message again: a confirm must mean that every queue has
it.
"""

import struct

from rig import GUEST, Broker, Stream, admin, administration, messaging, penstock, run, wire

QUEUES, TARGETS_MAX, SEGMENT_HEADER = 1_500, 1_024, 64
BODY = b"for everybody"


def publish(channel):
    stream = Stream(
        messaging(channel).Publish,
        wire.PublishRequest(open=wire.PublishOpen(producer="anna", durability=wire.DURABILITY_OS)),
        wire.PublishRequest(
            batch=wire.PublishBatch(
                exchange="all", mandatory=True, messages=[wire.Message(body=BODY)], producer_sequence=1
            )
        ),
    )
    answer = next(stream)
    stream.end()
    return "confirmed" if answer.confirmed else "returned" if answer.returned else "refused"


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection, broker.channel() as channel:
            connection.declare_exchange("all", "fanout")
            stub = administration(channel)
            queues = [f"queue-{number}" for number in range(QUEUES)]
            declares = [
                stub.DeclareQueue.future(
                    admin.DeclareQueueRequest(queue=admin.Queue(name=name, durable=True)), metadata=GUEST
                )
                for name in queues
            ]
            for each in declares:
                each.result()
            binds = [
                stub.Bind.future(admin.BindRequest(binding=admin.Binding(**_binding(name))), metadata=GUEST)
                for name in queues
            ]
            for each in binds:
                each.result()
            publish(channel)
        broker.kill()
        records = _tear_after_first(broker)
        broker.start()
        with penstock.connect(broker.uri) as connection, broker.channel() as channel:
            again = publish(channel)
            with_it = sum(queue.ready_count for queue in connection.admin.list_queues())
    return again == "confirmed" and with_it < QUEUES, (
        f"{QUEUES} queues, {records} records, torn after the first; sent again it was {again}, "
        f"and {with_it} queues have it"
    )


def _binding(queue):
    return {"source": "all", "destination": queue, "destination_kind": admin.DESTINATION_KIND_QUEUE}


def _tear_after_first(broker):
    """Zeros from the second record with this body on; returns how many there were."""
    segment = next(path for path in broker.segments() if BODY in path.read_bytes())
    content, at, found = segment.read_bytes(), SEGMENT_HEADER, []
    while length := struct.unpack_from("<I", content, at)[0]:
        if BODY in content[at : at + length]:
            found.append(at)
        at += length
    if len(found) > 1:
        with segment.open("r+b") as file:
            file.seek(found[1])
            file.write(bytes(len(content) - found[1]))
    return len(found)


run(check)
