"""A percent-encoded star in a token's scope must be the letter, not the wildcard."""

from issuer import Issuer, bearer
from rig import Broker, grpc, messaging, penstock, run, wire


def check():
    issuer = Issuer()
    codes = {}
    with Broker(env=issuer.settings()) as broker:
        broker.start()
        with penstock.connect(broker.uri) as connection:
            for name in ("x", "*"):
                connection.declare_queue(name)
                connection.publish(b"secret", routing_key=name)
        anna = bearer(issuer.token(600, "mq.read:%2F/%2A"))
        with broker.channel() as channel:
            for name in ("x", "*"):
                try:
                    messaging(channel).Get(wire.GetRequest(queue=name, auto_ack=True), metadata=anna, timeout=60)
                    codes[name] = "OK"
                except grpc.RpcError as refused:
                    codes[name] = refused.code().name
    if codes["*"] != "OK":
        raise RuntimeError(f"the queue that the scope names cannot be read: {codes['*']}")
    return codes["x"] != "PERMISSION_DENIED", f"mq.read:%2F/%2A reads queue 'x': {codes['x']}, queue '*': {codes['*']}"


run(check)
