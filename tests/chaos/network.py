"""A network of its own for brokers, each in a namespace, between which directions can be cut.

A cut direction drops packets silently, as a broken switch does: the sender is given a wrong hardware address of the
receiver. It needs nothing but `ip`, `unshare` and `nsenter`. Namespaces end with the process that made them.
"""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from chaos.faults import Link
from support.broker import LOOPBACK, Place

__all__ = ["Loopback", "Network", "enter_own_network"]

INSIDE: Final = "PENSTOCK_CHAOS_NETWORK"
WAYS: Final = (("unshare", "--net"), ("unshare", "--user", "--map-root-user", "--net"))
WRONG: Final = "02:00:00:00:00:ff"


def enter_own_network() -> bool:
    """Run this program again in a network namespace of its own; return False where that is not allowed.

    It returns True in the program that runs there.
    """
    if os.environ.get(INSIDE):
        return True
    probe = ("ip", "link", "add", "probe", "type", "bridge")
    for way in WAYS:
        try:
            done = subprocess.run([*way, *probe], capture_output=True, check=False)
        except FileNotFoundError:
            return False
        if done.returncode == 0:
            os.execvpe(way[0], [*way, sys.executable, *sys.orig_argv[1:]], {**os.environ, INSIDE: "1"})
    return False


class Loopback:
    """The network of a machine that allows no namespaces: brokers are on loopback, and nothing can be cut."""

    can_cut = False

    def __init__(self, names: Sequence[str]) -> None:
        self.places: Mapping[str, Place] = dict.fromkeys(names, LOOPBACK)

    def cut(self, links: Sequence[Link]) -> None:
        # Not reached: faults that cut something are left out where `can_cut` is false.
        raise NotImplementedError("this machine allows no namespaces")

    def heal(self) -> None:
        """Do nothing: nothing is cut."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class _Host:
    """A namespace: the process that keeps it, and its addresses."""

    keeper: subprocess.Popen[bytes]
    address: str
    hardware: str

    @property
    def enter(self) -> tuple[str, ...]:
        return ("nsenter", "--target", str(self.keeper.pid), "--net")


class Network:
    """A switch with a namespace for each broker; this process is at the switch, and reaches all of them always."""

    can_cut = True

    def __init__(self, names: Sequence[str]) -> None:
        _run("ip link set lo up")
        _run("ip link add hub type bridge")
        _run("ip address add 10.77.0.254/24 dev hub")
        _run("ip link set hub up")
        self._hosts: dict[str, _Host] = {}
        for number, name in enumerate(names, start=1):
            self._hosts[name] = _make_host(number)
        self.heal()

    @property
    def places(self) -> Mapping[str, Place]:
        return {name: Place(host.address, host.enter) for name, host in self._hosts.items()}

    def cut(self, links: Sequence[Link]) -> None:
        """Drop the packets of these directions, and of no others."""
        for source, host in self._hosts.items():
            lines = [
                f"neigh replace {other.address} lladdr {WRONG if (source, target) in links else other.hardware} "
                "dev eth0 nud permanent"
                for target, other in self._hosts.items()
                if target != source
            ]
            _run("ip -batch -", host.enter, "\n".join(lines))

    def heal(self) -> None:
        self.cut(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for host in self._hosts.values():
            host.keeper.kill()
            host.keeper.wait()


def _make_host(number: int) -> _Host:
    # The keeper ends when its standard input does, which is with this process.
    script = ["unshare", "--net", "sh", "-c", "echo ready; exec cat"]
    keeper = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert keeper.stdout is not None
    keeper.stdout.readline()
    host = _Host(keeper, f"10.77.0.{number}", f"02:00:00:00:00:{number:02x}")
    _run(f"ip link add port{number} type veth peer name eth0 netns {keeper.pid}")
    _run(f"ip link set port{number} master hub up")
    _run("ip link set lo up", host.enter)
    _run(f"ip link set eth0 address {host.hardware}", host.enter)
    _run(f"ip address add {host.address}/24 dev eth0", host.enter)
    _run("ip link set eth0 up", host.enter)
    return host


def _run(command: str, enter: Sequence[str] = (), content: str = "") -> None:
    subprocess.run([*enter, *command.split()], input=content.encode(), check=True)
