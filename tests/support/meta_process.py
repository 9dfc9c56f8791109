"""A broker's process as far as the metadata of a cluster goes: it reads commands as lines, and answers in lines.

`peer NAME ADDRESS` says where a broker is, `submit NUMBER COMMAND` asks as a client does, `state` asks whether this
broker leads, and for the position that it has applied.
"""

import asyncio
import secrets
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.cluster.beating import keep_beating
from penstock.cluster.host import FRAME_BYTES_MAX, ClusterHost, Member
from penstock.cluster.meta.codec import Codec
from penstock.cluster.meta.commands import MetaCommand
from penstock.cluster.meta.member import META_OPTIONS, MetaMember
from penstock.cluster.opening import open_coordinator
from penstock.cluster.record import BrokerName
from penstock.cluster.translation import broker_number
from penstock.kit.clock import SystemClock
from penstock.kit.logging import configure
from penstock.kit.tasks import spawn
from penstock.model.errors import RefusedError
from penstock.native import ClusterNode
from penstock.storage import DataDirectory

CLUSTER: Final = bytes(range(16))
COMMANDS: Final[Codec[MetaCommand]] = Codec(MetaCommand)
CHECKPOINT_RECORDS: Final = 5
# Small segments, so that the log is shortened after some commands.
OPTIONS: Final = replace(META_OPTIONS, segment_bytes_min=8 * 1024, segment_bytes_max=64 * 1024)


class Broker:
    """The broker between its start and the end of its input."""

    def __init__(self, name: BrokerName, directory: Path, coordinator: str) -> None:
        boot = secrets.randbits(63)
        node = ClusterNode(
            number=broker_number(name),
            cluster=CLUSTER,
            boot=boot,
            address="127.0.0.1:0",
            secrets=["secret"],
            frame_bytes_max=FRAME_BYTES_MAX,
        )
        self.data = DataDirectory.open(directory)
        self.coordinator = open_coordinator(coordinator, directory)
        self.host = ClusterHost(node, self.coordinator, Member(CLUSTER, name, boot))
        self.member = MetaMember(self.host, self.data, CHECKPOINT_RECORDS, OPTIONS)
        self._joined = asyncio.Event()

    async def run(self, founders: list[BrokerName]) -> None:
        me = self.host.me
        self.host.start()
        await self.member.start(founders)
        say(f"listens {self.host.address}")
        tasks = [
            spawn(keep_beating(self.coordinator, me.name, me.boot, self._tell_session, SystemClock()), name="beats"),
            spawn(self._join(), name="join"),
        ]
        while line := await asyncio.to_thread(sys.stdin.readline):
            self._obey(line.rstrip("\n"))
        for task in tasks:
            task.cancel()
        await self.member.stop()
        await self.host.stop()
        self.data.close()

    def _obey(self, line: str) -> None:
        verb, _, rest = line.partition(" ")
        match verb:
            case "peer":
                name, _, address = rest.partition(" ")
                self.host.set_peer(BrokerName(name), address)
            case "submit":
                number, _, command = rest.partition(" ")
                spawn(self._submit(number, COMMANDS.decode(command.encode())), name="submit")
            case "state":
                say(f"state {int(self.member.leads)} {self.member.state.position}")
            case _:
                raise AssertionError(line)

    def _tell_session(self, broker: str, is_alive: bool) -> None:
        self.host.session(broker, is_alive=is_alive)

    async def _join(self) -> None:
        await self.member.join()
        self._joined.set()

    async def _submit(self, number: str, command: MetaCommand) -> None:
        await self._joined.wait()
        try:
            answer = await self.member.asker.submit(command)
        except RefusedError as refusal:
            say(f"refused {number} {refusal}")
        else:
            say(f"answered {number} {answer}")


def say(line: str) -> None:
    """Write a line whole."""
    with suppress(BrokenPipeError):  # the test has ended
        print(line, flush=True)


async def main() -> None:
    configure("info", "json")
    name, directory, coordinator, founders = sys.argv[1:]
    names = [BrokerName(founder) for founder in founders.split(",") if founder]
    await Broker(BrokerName(name), Path(directory), coordinator).run(names)


if __name__ == "__main__":
    asyncio.run(main())
