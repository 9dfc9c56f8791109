"""One publish request of 16 MiB that holds 8 million empty messages.

The broker's memory and another client's confirms must not suffer.
"""

import contextlib
import threading
import time

from rig import GUEST, MIB, Broker, credentials, grpc, penstock, percentile, run, wire

REQUEST_BYTES = 16 * MIB - 64
MEMORY_MAX, STALL_SECONDS_MAX = 400 * MIB, 0.5


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes(out + bytes((number,)))


def check():
    opening = wire.PublishRequest(open=wire.PublishOpen(durability=wire.DURABILITY_OS)).SerializeToString()
    head = wire.PublishBatch(routing_key="flood").SerializeToString()
    count = (REQUEST_BYTES - len(head)) // 2
    batch = head + b"\x22\x00" * count  # field 4 of the batch, 0 bytes
    flood = b"\x12" + varint(len(batch)) + batch
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="os") as connection, broker.channel() as channel:
            connection.declare_queue("flood")
            connection.declare_queue("bystander")
            latencies, over = [], threading.Event()

            def publish():
                while not over.wait(0.005):
                    began = time.monotonic()
                    connection.publish(b"x", routing_key="bystander")
                    latencies.append(time.monotonic() - began)

            bystander = threading.Thread(target=publish, daemon=True)
            bystander.start()
            time.sleep(2)
            calm, before = list(latencies), broker.rss()
            latencies.clear()
            method = channel.stream_stream(
                "/penstock.v1.MessagingService/Publish", None, wire.PublishResponse.FromString
            )
            confirmed, answer = 0, "confirmed"
            with broker.watching(every=0.005) as highest:
                began = time.monotonic()
                try:
                    for response in method(iter((opening, flood)), metadata=GUEST, timeout=120):
                        confirmed += sum(span.last - span.first + 1 for span in response.confirmed)
                        if response.rejected or confirmed >= count:
                            break
                except grpc.RpcError as error:
                    answer = error.code().name
                took = time.monotonic() - began
            over.set()
            bystander.join(60)
            denied = _denied(broker, connection, method, (opening, flood), count)
    grown, stall = highest[0] - before, max(latencies, default=took)
    return max(grown, denied) > MEMORY_MAX or stall > STALL_SECONDS_MAX, (
        f"{count:,} empty messages in one request of 16 MiB: {confirmed:,} {answer} in {took:.1f} s, memory grew by "
        f"{grown // MIB} MiB at most; a bystander's confirms p99 {percentile(latencies, 0.99) * 1e3:.0f} ms, longest "
        f"{stall * 1e3:.0f} ms (before: p99 {percentile(calm, 0.99) * 1e3:.0f} ms, longest {max(calm) * 1e3:.0f} ms); "
        f"from a user who may not write it grew by {denied // MIB} MiB"
    )


def _denied(broker, connection, method, requests, count):
    """How far memory grows when none of the messages is allowed."""
    connection.admin.put_user("walter", "password")
    connection.admin.set_permission("walter")
    time.sleep(2)
    before, rejected = broker.rss(), 0
    with broker.watching(every=0.005) as highest, contextlib.suppress(grpc.RpcError):
        for response in method(iter(requests), metadata=credentials("walter", "password"), timeout=120):
            rejected += sum(span.last - span.first + 1 for span in response.rejected)
            if rejected >= count:
                break
    return highest[0] - before


run(check)
