"""Streams opened with one token are remembered one by one for as long as the connection lives.

Each stream sends the token with another number of spaces before it.
"""

from http2 import Wire
from issuer import EVERYTHING, Issuer
from rig import MIB, Broker, run, wire

OPENS, AT_A_TIME = 4_000, 200
SPACES = 20_000
MB_MAX = 20.0


def check():
    opening = wire.PublishRequest(open=wire.PublishOpen()).SerializeToString()
    issuer = Issuer()
    with Broker(env=issuer.settings()) as broker:
        broker.start()
        token = issuer.token(3_600, EVERYTHING)
        connection = Wire(broker.port)

        def grown(first, step):
            before, ended = broker.rss() / MIB, 0
            for begin in range(0, OPENS, AT_A_TIME):
                for at in range(begin, begin + AT_A_TIME):
                    spaces = " " * (first + at * step)
                    connection.request("/penstock.v1.MessagingService/Publish", f"Bearer{spaces}{token}", opening)
                ended += connection.ended(10, AT_A_TIME)
            return broker.rss() / MIB - before, ended

        grown(SPACES, 0)  # buffers
        same_mb, same = grown(SPACES, 0)
        other_mb, other = grown(SPACES, 1)
        connection.close()
    sentence = (
        f"{other} opens, each with another header of some {(SPACES + OPENS // 2) >> 10} KiB, make the broker grow by"
    )
    return other_mb > MB_MAX, f"{sentence} {other_mb:.0f} MB; {same} with the same one by {same_mb:.0f} MB"


run(check)
