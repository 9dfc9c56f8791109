"""A clean stop, then the newest segment's header zeroed (or overwritten).

The file may hold confirmed messages and must not be removed, nor set aside without a word.
"""

from rig import Broker, penstock, run


def corrupt(header):
    """Return what a start leaves of 1,000 confirmed messages after the newest segment's header became `header`."""
    with Broker() as broker:
        broker.start()
        with penstock.connect(broker.uri, durability="disk") as connection:
            connection.declare_queue("letters")
            connection.publish_many([b"letter-%04d" % number for number in range(1, 1001)], routing_key="letters")
        broker.stop()
        newest = broker.segments()[-1]
        held = newest.read_bytes().count(b"letter-")
        with newest.open("r+b") as file:
            file.write(header)
        if not broker.start():
            return False, "the start was refused"
        told = broker.warnings()
        with penstock.connect(broker.uri) as connection:
            ready = connection.admin.get_queue("letters").ready_count
            left = sum(1 for _ in connection.consume("letters", idle_timeout=3.0))
        told_late = broker.warnings()
        kept = [path.name for path in broker.data.rglob("*") if path.is_file() and b"letter-0500" in path.read_bytes()]
        is_faulty = not kept or (left < 1000 and not told)
        return is_faulty, (
            f"{newest.name} held {held} of 1,000 messages; after the start {ready} are called ready with {len(told)} "
            f"warnings, {left} are delivered with {len(told_late)} warnings, bytes kept in {kept or 'no file'}"
        )


def check():
    zeroed, other = corrupt(bytes(64)), corrupt(b"\xff" * 64)
    return zeroed[0] or other[0], f"zeroed: {zeroed[1]}; overwritten: {other[1]}"


run(check)
