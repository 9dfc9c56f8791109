"""Kubernetes for the end-to-end tests: three providers with one interface.

make and CI call `python e2e/cluster.py up|load|down`. No test knows which provider it runs on; it only gets a
kubeconfig.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).resolve().parent
Run = Callable[[Sequence[str], Mapping[str, str]], None]


class ProviderError(Exception):
    """A provider failed; the text says what to do."""


class Provider(Protocol):
    """Starts a cluster, loads images on its nodes, stops it."""

    def up(self, nodes: int) -> Path:
        """Start the cluster unless it runs; return the kubeconfig."""

    def load(self, archive: Path) -> None:
        """Load an OCI archive onto every node."""

    def down(self) -> None: ...


def run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    subprocess.run(list(command), check=True, env={**os.environ, **environment})


@dataclass(frozen=True, slots=True)
class Harness:
    """The folder `harness`: Kubernetes as processes of this machine."""

    state: Path
    run: Run = run

    def up(self, nodes: int = 1) -> Path:
        kubeconfig = self.state / "pki" / "admin.kubeconfig"
        if not (self.state / "up").exists():
            self._script("build.sh")
            self._script("up.sh", str(nodes))
        return kubeconfig

    def load(self, archive: Path) -> None:
        for node in sorted(self.state.glob("node*")):
            self._script("load_image.sh", node.name.removeprefix("node"), str(archive))

    def down(self) -> None:
        self._script("down.sh")

    def pause_api(self) -> None:
        """Pause the API server; pods run on."""
        self._signal_api("STOP")

    def resume_api(self) -> None:
        self._signal_api("CONT")

    def _signal_api(self, name: str) -> None:
        """Signal the API server, whose process id is of the node's own namespace."""
        node = self.state / "node1"
        inside = (node / "kube-apiserver.pid").read_text().strip()
        outside = (node / "pid").read_text().strip()
        children = Path(f"/proc/{outside}/task/{outside}/children").read_text().split()
        self.run(["nsenter", "-t", children[0], "-p", "-m", "kill", f"-{name}", inside], {})

    def _script(self, name: str, *arguments: str) -> None:
        self.run(["nice", "-n", "5", str(HERE / "harness" / name), *arguments], {"STATE": str(self.state)})


@dataclass(frozen=True, slots=True)
class Kind:
    """kind, where docker or podman is available."""

    kubeconfig: Path
    name: str = "penstock"
    run: Run = run

    def up(self, nodes: int = 1) -> Path:
        if nodes != 1:
            raise ProviderError("kind is set up with one node here; use the harness for more")
        if not self.kubeconfig.exists():
            self.run(
                [
                    "kind",
                    "create",
                    "cluster",
                    "--name",
                    self.name,
                    "--kubeconfig",
                    str(self.kubeconfig),
                    "--wait",
                    "120s",
                ],
                {},
            )
        return self.kubeconfig

    def load(self, archive: Path) -> None:
        self.run(["kind", "load", "image-archive", str(archive), "--name", self.name], {})

    def down(self) -> None:
        self.run(["kind", "delete", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig)], {})
        self.kubeconfig.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class Existing:
    """An existing cluster.

    The command in E2E_LOAD loads images, with the archive appended; without it the images must be there.
    """

    kubeconfig: Path
    load_command: str = ""
    run: Run = run

    def up(self, nodes: int = 1) -> Path:  # noqa: ARG002 - it has the nodes that it has
        if not self.kubeconfig.exists():
            raise ProviderError(f"there is no kubeconfig {self.kubeconfig}; set KUBECONFIG to one")
        return self.kubeconfig

    def load(self, archive: Path) -> None:
        if self.load_command:
            self.run([*self.load_command.split(), str(archive)], {})

    def down(self) -> None:
        """Do nothing: the cluster stays."""


def provider(name: str, environment: Mapping[str, str] = os.environ) -> Provider:
    """Return a provider by name; the environment has its paths."""
    if name == "harness":
        return Harness(Path(environment.get("STATE", HERE / "harness" / "state")))
    if name == "kind":
        return Kind(Path(environment.get("KIND_KUBECONFIG", HERE / "kind.kubeconfig")))
    if name == "existing":
        return Existing(
            Path(environment.get("KUBECONFIG", Path.home() / ".kube" / "config")), environment.get("E2E_LOAD", "")
        )
    raise ProviderError(f"there is no provider {name!r}; use harness, kind or existing")


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description="Kubernetes for the end-to-end tests.")
    parser.add_argument("verb", choices=("up", "load", "down"))
    parser.add_argument("archives", nargs="*", type=Path)
    parser.add_argument("--provider", default=os.environ.get("E2E_PROVIDER", "harness"))
    parser.add_argument("--nodes", type=int, default=1)
    found = parser.parse_intermixed_args(arguments)  # archives may come after options
    chosen = provider(found.provider)
    if found.verb == "up":
        print(chosen.up(found.nodes))
    elif found.verb == "load":
        for archive in found.archives:
            chosen.load(archive)
    else:
        chosen.down()


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except ProviderError as error:
        sys.exit(f"cluster: {error}")
