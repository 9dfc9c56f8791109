"""Results of other brokers for the durable rows, on the same two cores with their own load.

They are printed beside the targets and used in no computation.
"""

__all__ = ["peer"]

PEERS = {
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
