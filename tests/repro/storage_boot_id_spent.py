"""A start that fails after power was lost must not use up the knowledge that it was.

Numbers that consumers saw may not be given to other messages.
"""

import json
import struct
import uuid

from rig import Broker, penstock, run

RECORD_HEADER, SEGMENT_HEADER = 24, 64


def number_after(fails_first):
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="os") as connection:
            connection.declare_queue("letters")
            connection.publish_many([b"before-%02d" % number for number in range(1, 21)], routing_key="letters")
            seen = [message.sequence for message in connection.consume("letters", idle_timeout=3.0)]
        broker.kill()
        _lose_tail(broker, b"before-11")
        node = broker.data / "node.json"
        node.write_text(json.dumps(json.loads(node.read_text()) | {"boot_id": str(uuid.uuid4())}))
        failed = False
        if fails_first:
            missing = str(broker.data.parent / "missing.pem")
            broker.env = {"PENSTOCK_TLS_CERTIFICATE": missing, "PENSTOCK_TLS_KEY": missing}
            failed = not broker.start()
            broker.env = {}
        if not broker.start():
            raise RuntimeError(broker.log[-500:])
        with penstock.connect(broker.uri) as connection:
            connection.publish(b"after", routing_key="letters")
            found = connection.consume("letters", idle_timeout=3.0)
            after = next(message.sequence for message in found if message.body == b"after")
        return max(seen), failed, after


def _lose_tail(broker, body):
    """Zeros from the record of this body on, as blocks read that never reached the disk."""
    segment = next(path for path in broker.segments() if body in path.read_bytes())
    content, at = segment.read_bytes(), SEGMENT_HEADER
    while True:
        (length,) = struct.unpack_from("<I", content, at)
        if length == 0:
            raise RuntimeError("the record was not found")
        if body in content[at : at + length]:
            break
        at += length
    with segment.open("r+b") as file:
        file.seek(at)
        file.write(bytes(len(content) - at))


def check():
    highest, _, straight = number_after(fails_first=False)
    _, failed, after = number_after(fails_first=True)
    return after <= highest, (
        f"consumers saw numbers up to {highest}; after power loss the next is {straight}, but {after} when a start "
        f"that {'failed' if failed else 'did not fail'} (TLS file missing) came between"
    )


run(check)
