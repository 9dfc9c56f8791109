"""A named producer's sequence 5 is refused, 6 is stored, 5 is sent again.

It must be stored or refused, never confirmed without being stored.
"""

from rig import Broker, Stream, messaging, penstock, run, wire


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection, broker.channel() as channel:
            connection.declare_queue("letters")
            stream = Stream(messaging(channel).Publish, wire.PublishRequest(open=wire.PublishOpen(producer="anna")))

            def publish(sequence, exchange="", key="letters"):
                body = wire.Message(body=b"sequence %d" % sequence)
                batch = wire.PublishBatch(
                    exchange=exchange, routing_key=key, messages=[body], producer_sequence=sequence
                )
                stream.send(wire.PublishRequest(batch=batch))
                answer = next(stream)
                return "confirmed" if answer.confirmed else "returned" if answer.returned else "refused"

            first = publish(5, exchange="late")
            second = publish(6)
            connection.declare_exchange("late", "fanout")
            connection.bind_queue("letters", "late", "")
            again = publish(5, exchange="late")
            stream.end()
            stored = [message.body.decode() for message in connection.consume("letters", idle_timeout=3.0)]
        answers = {"sequence 5": again, "sequence 6": second}
        lost = [name for name, answer in answers.items() if answer == "confirmed" and name not in stored]
        return bool(lost), f"5 was {first} (no such exchange), 6 {second}, 5 again {again}; the queue holds {stored}"


run(check)
