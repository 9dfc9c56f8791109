"""kill -9, then one byte flipped in the 10th of 1,000 messages confirmed at `disk`: the 990 after it must be there."""

from rig import Broker, penstock, run


def check():
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="disk") as connection:
            connection.declare_queue("letters")
            connection.publish_many([b"letter-%04d" % number for number in range(1, 1001)], routing_key="letters")
        broker.kill()
        segment = next(path for path in broker.segments() if b"letter-0010" in path.read_bytes())
        content = segment.read_bytes()
        at = content.index(b"letter-0010")
        with segment.open("r+b") as file:
            file.seek(at)
            file.write(bytes((content[at] ^ 0x01,)))
        if not broker.start():
            return False, f"the start was refused: {broker.log[-300:]}"
        told = broker.warnings()
        with penstock.connect(broker.uri) as connection:
            left = [message.body for message in connection.consume("letters", idle_timeout=3.0)]
        corrupt = [line for line in broker.get("/metrics")[1].splitlines() if "corrupt" in line and line[0] != "#"]
        return len(left) < 999, (
            f"{len(left)} of 1,000 messages confirmed at disk are left, the last is {left[-1] if left else None}; "
            f"{len(told)} warnings or errors logged, metrics {corrupt}"
        )


run(check)
