"""A user whose permissions match nothing takes another's producer name from under an open stream.

The user also fills the table of names, so that no other user gets a new one.
"""

import threading
import time

from http2 import Wire
from rig import Broker, grpc, run, wire
from stubs import GUEST, Stubs, basic, batch, confirmed, reasons

NAMES, AT_A_TIME, SECONDS = 65_536, 256, 240.0


def opening(name):
    return wire.PublishRequest(open=wire.PublishOpen(producer=name)).SerializeToString()


def check():
    with Broker() as broker:
        broker.start()
        root = Stubs(broker.channel(), GUEST)
        root.put_user("mallory", pattern="^$")
        root.declare("q")
        go_on = threading.Event()

        def requests():
            yield wire.PublishRequest(open=wire.PublishOpen(producer="own"))
            yield wire.PublishRequest(batch=batch("q", b"x", sequence=1))
            go_on.wait(60)
            yield wire.PublishRequest(batch=batch("q", b"x", sequence=2))
            time.sleep(20)

        stream = root.Publish(requests(), 80)
        next(stream)
        mallory = Wire(broker.port)
        mallory.request("/penstock.v1.MessagingService/Publish", basic("mallory", "x"), opening("own"))
        mallory.ended(10)
        go_on.set()
        try:
            answer = [next(stream)]
            held = "keeps" if confirmed(answer) else f"loses ({reasons(answer)})"
        except grpc.RpcError as refused:
            held = f"loses ({refused.code().name}: {refused.details()[:60]})"
        stream.cancel()
        began, opened = time.monotonic(), 0
        while opened < NAMES and time.monotonic() - began < SECONDS:
            for number in range(opened, opened + AT_A_TIME):
                mallory.request("/penstock.v1.MessagingService/Publish", basic("mallory", "x"), opening(f"m{number}"))
            opened += mallory.ended(10, AT_A_TIME)
        took = time.monotonic() - began
        try:
            root.publish(batch("q", b"x", sequence=1), producer="new")
            fresh = "is let in"
        except grpc.RpcError as refused:
            fresh = f"is refused ({refused.code().name}: {refused.details()[:60]})"
    sentence = (
        f"an administrator's open stream {held} its name to a user without any right; after their {opened} opens in"
    )
    return held != "keeps" or fresh != "is let in", f"{sentence} {took:.0f} s a new producer {fresh}"


run(check)
