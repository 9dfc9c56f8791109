"""kubectl and helm for the tests, by their command lines, as users run them.

A command that fails raises its output; waits are for a condition with a limit, never for a fixed time.
"""

import base64
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Manifest = dict[str, Any]
POLL_SECONDS = 0.2


class CommandError(AssertionError):
    """A command failed; the text is its output."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """One cluster. `bin_folder` has kubectl and helm, when they are not on the PATH."""

    kubeconfig: Path
    bin_folder: Path | None = None

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        return self.run(["kubectl", *arguments], stdin)

    def helm(self, *arguments: str) -> str:
        return self.run(["helm", *arguments])

    def run(self, command: Sequence[str], stdin: str | None = None) -> str:
        done = self.attempt(command, stdin)
        if done.returncode != 0:
            raise CommandError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def attempt(self, command: Sequence[str], stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            list(command), input=stdin, capture_output=True, text=True, check=False, env=self.environment(), timeout=600
        )

    def environment(self) -> dict[str, str]:
        path = os.environ["PATH"] if self.bin_folder is None else f"{self.bin_folder}:{os.environ['PATH']}"
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "PATH": path}

    def apply(self, *manifests: Manifest, namespace: str = "default") -> None:
        items = {"apiVersion": "v1", "kind": "List", "items": list(manifests)}
        self("apply", "--namespace", namespace, "-f", "-", stdin=json.dumps(items))

    def get(self, kind: str, name: str, namespace: str = "default") -> Manifest | None:
        text = self("get", kind, name, "--namespace", namespace, "--output", "json", "--ignore-not-found")
        found: Manifest | None = json.loads(text) if text.strip() else None
        return found

    def list(self, kind: str, namespace: str = "default") -> list[Manifest]:
        items: list[Manifest] = json.loads(self("get", kind, "--namespace", namespace, "--output", "json"))["items"]
        return items

    def wait_ready(self, what: str, namespace: str = "default", seconds: int = 120) -> None:
        """Wait until `what`, as kind/name, is ready."""
        self("wait", "--for=condition=Ready", what, "--namespace", namespace, f"--timeout={seconds}s")

    def condition(self, kind: str, name: str, type_: str = "Ready", namespace: str = "default") -> tuple[str, str, str]:
        """Return status, reason and message, empty when the condition is absent; those of pods have no reason."""
        found = self.get(kind, name, namespace) or {}
        for each in found.get("status", {}).get("conditions", []):
            if each["type"] == type_:
                return each["status"], each.get("reason", ""), each.get("message", "")
        return "", "", ""

    def password(self, secret: str = "mq-default-user", namespace: str = "default") -> str:
        encoded = self("get", "secret", secret, "--namespace", namespace, "--output", "jsonpath={.data.password}")
        return base64.b64decode(encoded).decode()


def until(holds: Callable[[], object], what: str, seconds: float = 60) -> None:
    """Wait until `holds` is true. A command that fails meanwhile counts as false."""
    deadline = time.monotonic() + seconds
    last = ""
    while time.monotonic() < deadline:
        try:
            if holds():
                return
        except CommandError as error:
            last = str(error)
        time.sleep(POLL_SECONDS)
    raise AssertionError(f"not within {seconds:g} s: {what} {last}".strip())
