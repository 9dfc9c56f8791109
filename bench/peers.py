"""Results of other brokers for rows over AMQP and durable ones, on the same two cores with their own load.

They are printed beside the targets and used in no computation.
"""

__all__ = ["peer"]

PEERS = {
    ("amqp-auto-ack", "rate"): "LavinMQ 2.9.1: 622,000",
    ("amqp-auto-ack", "broker_cpu_us"): "LavinMQ 2.9.1: 1.0",
    ("amqp-auto-ack-large", "rate"): "LavinMQ 2.9.1: 303,000",
    ("amqp-auto-ack-large", "broker_cpu_us"): "LavinMQ 2.9.1: 3.3",
    ("amqp-confirmed", "rate"): "LavinMQ 2.9.1: 370,000",
    ("amqp-confirmed", "broker_cpu_us"): "LavinMQ 2.9.1: 1.6",
    ("amqp-confirmed-large", "rate"): "LavinMQ 2.9.1: 149,000",
    ("amqp-confirmed-large", "broker_cpu_us"): "LavinMQ 2.9.1: 5.2",
    ("amqp-latency", "p99"): "LavinMQ 2.9.1: 560-800, at 1,000/s",
    ("many-single", "rate"): "LavinMQ 2.9.1: 249,000",
    ("many-single", "written_ratio"): "LavinMQ 2.9.1: 7.4",
    ("many-batched", "rate"): "LavinMQ 2.9.1: 249,000",
    ("many-batched", "written_ratio"): "LavinMQ 2.9.1: 7.4",
    ("one-by-one", "rate"): "LavinMQ: 3,300",
    ("one-by-one", "written"): "LavinMQ: 8,900",
    ("backlog", "stored"): "LavinMQ: 130",
    ("backlog", "start"): "LavinMQ: 0.13, with 5 M",
    ("backlog", "drained"): "LavinMQ: 183,000; Kafka: 1,400,000",
    ("queues", "declared"): "LavinMQ: 70, for 10,000",
    ("queues", "resident"): "LavinMQ: 207, for 10,000",
    ("queues", "start"): "LavinMQ: 8.5, with 10,000",
}


def peer(row_key: str, figure_key: str) -> str:
    """Return the result, empty where no other broker was measured."""
    return PEERS.get((row_key, figure_key), "")
