"""Get of 100 messages of 10 MB.

The broker must not build 1 GB of response, and with auto_ack a client whose gRPC refuses a large response must not lose
messages it never saw. The verdict is about the memory and the messages of 100 kB: one of 10 MB is more than such a
client can take alone.
"""

from rig import GUEST, MIB, Broker, grpc, messaging, penstock, run, wire

LARGE_COUNT, LARGE_BYTES = 100, 10_000_000
SMALL_COUNT, SMALL_BYTES = 200, 100_000
RESPONSE_BYTES_MAX = 256 * MIB


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="os") as connection:
            connection.declare_queue("large")
            connection.declare_queue("small")
            body, transient = bytes(LARGE_BYTES), penstock.Properties(delivery_mode=penstock.TRANSIENT)
            for _ in range(LARGE_COUNT // 20):
                connection.publish_many([body] * 20, routing_key="large", properties=transient)
            connection.publish_many([bytes(SMALL_BYTES)] * SMALL_COUNT, routing_key="small", properties=transient)

            def left(queue):
                found = connection.admin.get_queue(queue)
                return found.ready_count + found.unacked_count

            # With gRPC's own default: responses of at most 4 MiB.
            with broker.channel(**{"grpc.max_receive_message_length": 4 * MIB}) as channel:
                request = wire.GetRequest(queue="small", count_max=SMALL_COUNT, auto_ack=True)
                small = _get(messaging(channel), request)
                small_left = left("small")
            before = broker.rss()
            with (
                broker.channel(**{"grpc.max_receive_message_length": 4 * MIB}) as channel,
                broker.watching() as highest,
            ):
                request = wire.GetRequest(queue="large", count_max=LARGE_COUNT, auto_ack=True)
                large = _get(messaging(channel), request)
                large_left = left("large")
            grown = highest[0] - before
    small_lost = SMALL_COUNT - small_left - small[0]
    large_lost = LARGE_COUNT - large_left - large[0]
    return small_lost > 0 or grown > RESPONSE_BYTES_MAX, (
        f"auto_ack, default client: Get({SMALL_COUNT}) x 100 kB gave {small[0]} ({small[1]}), {small_lost} lost; "
        f"Get({LARGE_COUNT}) x 10 MB gave {large[0]} ({large[1]}), {large_lost} lost, "
        f"the broker's own memory grew by {grown // MIB} MiB"
    )


def _get(stub, request):
    try:
        return len(stub.Get(request, metadata=GUEST, timeout=120).deliveries), "OK"
    except grpc.RpcError as error:
        return 0, error.code().name


run(check)
