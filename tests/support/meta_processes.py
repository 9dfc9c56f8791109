"""A cluster of processes, as far as its metadata goes, with a coordinator in a directory."""

import asyncio
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

from penstock.cluster.directory import DirectoryCoordinator
from penstock.cluster.meta.commands import MetaCommand
from penstock.cluster.record import ShardRecord
from penstock.storage.cluster_json import META
from support.meta_process import COMMANDS
from support.single_broker import meaning_of, metadata_files
from support.waiting import eventually

ROOT: Final = Path(__file__).resolve().parents[2]
LOG_BYTES_MAX: Final = 400_000
"""Some segments of the processes."""
SECONDS_MAX: Final = 60
"""Only ends a test that would otherwise never end."""


@dataclass
class Process:
    """A running process, the lines that it has said, and its address."""

    running: subprocess.Popen[str]
    lines: "queue.Queue[str]" = field(default_factory=queue.Queue)
    address: str = ""


class MetaProcesses:
    """It starts a process for each name on entering, and kills them on leaving."""

    def __init__(self, root: Path, names: list[str]) -> None:
        self._root = root
        self._names = names
        self._processes: dict[str, Process] = {}
        self._numbers = count(1)
        self._coordinator = DirectoryCoordinator(root / "coordinator")

    def __enter__(self) -> Self:
        for name in self._names:
            self.start(name)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name in list(self._processes):
            self.kill(name)

    def start(self, name: str) -> None:
        """Start the process of a broker, and introduce it to the others."""
        path = os.pathsep.join(str(ROOT / folder) for folder in ("broker", "tests"))
        arguments = [name, str(self.directory(name)), f"file:{self._root / 'coordinator'}", ",".join(self._names)]
        with (self._root / f"{name}.log").open("ab") as log:
            running = subprocess.Popen(
                [sys.executable, "-m", "support.meta_process", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                text=True,
            )
        process = Process(running)
        assert running.stdout is not None
        threading.Thread(target=pass_lines, args=(running.stdout, process.lines), daemon=True).start()
        process.address = self._answer(process, "listens ")
        for other, each in self._processes.items():
            self._say(process, f"peer {other} {each.address}")
            self._say(each, f"peer {name} {process.address}")
        self._processes[name] = process

    def kill(self, name: str) -> None:
        """Kill a process as `kill -9` does."""
        running = self._processes.pop(name).running
        running.kill()
        running.wait()
        close_pipes(running)

    def stop(self, name: str) -> None:
        """End the input of a process, and wait for its end."""
        running = self._processes.pop(name).running
        assert running.stdin is not None
        running.stdin.close()
        try:
            assert running.wait(SECONDS_MAX) == 0
        finally:
            running.kill()
            running.wait()
            close_pipes(running)

    def directory(self, name: str) -> Path:
        return self._root / name

    def submit(self, name: str, command: MetaCommand) -> str:
        """Ask a broker to carry out a command; return its answer."""
        number = next(self._numbers)
        process = self._processes[name]
        self._say(process, f"submit {number} {COMMANDS.encode(command).decode()}")
        return self._answer(process, f"answered {number} ")

    def submit_all(self, name: str, commands: Sequence[MetaCommand]) -> None:
        """Ask a broker to carry out commands, and wait until all of them are answered. They must not be refused."""
        process = self._processes[name]
        numbers = {str(next(self._numbers)): command for command in commands}
        for number, command in numbers.items():
            self._say(process, f"submit {number} {COMMANDS.encode(command).decode()}")
        answered = {self._answer(process, "answered ").split(" ", 1)[0] for _ in numbers}
        assert answered == numbers.keys()

    def wipe(self, name: str) -> None:
        """Remove the disk of a broker that does not run."""
        assert name not in self._processes
        shutil.rmtree(self.directory(name))

    def until_short(self, name: str) -> None:
        """Wait until the beginning of a broker's log is removed, and what is left is small."""

        def is_short() -> bool:
            sizes: dict[str, int] = {}
            for path in (self.directory(name) / META).iterdir():
                with suppress(FileNotFoundError):  # it was removed meanwhile
                    sizes[path.name] = path.stat().st_size
            return "msgs.0000000001" not in sizes and sum(sizes.values()) < LOG_BYTES_MAX

        eventually(is_short, True, SECONDS_MAX)

    def leader(self) -> str:
        """Return the broker that leads, once one does."""
        found: list[str] = []

        def has_leader() -> bool:
            found[:] = [name for name in self._processes if self._state(name)[0]]
            return len(found) == 1

        eventually(has_leader, True, SECONDS_MAX)
        return found[0]

    def until_in_sync(self, count_min: int) -> ShardRecord:
        """Wait until so many replicas are in sync, and have to be a majority; return the record."""
        found: list[ShardRecord] = []

        def is_in_sync() -> bool:
            read = asyncio.run(self._coordinator.read(META))
            if read is None:
                return False
            found[:] = [read.record]
            return len(read.record.in_sync) >= count_min and read.record.min_in_sync == len(self._names) // 2 + 1

        eventually(is_in_sync, True, SECONDS_MAX)
        return found[0]

    def until_equal(self) -> dict[str, bytes]:
        """Wait until all brokers have applied the same; return the files of one, which say the same on all."""

        def is_equal() -> bool:
            return len({self._state(name)[1] for name in self._processes}) == 1

        eventually(is_equal, True, SECONDS_MAX)
        all_files = [self._files(name) for name in self._processes]
        assert all(meaning_of(files) == meaning_of(all_files[0]) for files in all_files)
        return all_files[0]

    def _files(self, name: str) -> dict[str, bytes]:
        files = metadata_files(self.directory(name))
        return {path: content for path, content in files.items() if not path.startswith(f"{META}/")}

    def _state(self, name: str) -> tuple[bool, int]:
        process = self._processes[name]
        self._say(process, "state")
        leads, position = self._answer(process, "state ").split()
        return leads == "1", int(position)

    def _say(self, process: Process, line: str) -> None:
        assert process.running.stdin is not None
        process.running.stdin.write(line + "\n")
        process.running.stdin.flush()

    def _answer(self, process: Process, beginning: str) -> str:
        """Return the rest of the next line, which begins so."""
        line = process.lines.get(timeout=SECONDS_MAX)
        assert line.startswith(beginning), line
        return line.removeprefix(beginning)


def close_pipes(process: subprocess.Popen[str]) -> None:
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with suppress(BrokenPipeError):
            pipe.close()


def pass_lines(output: IO[str], lines: "queue.Queue[str]") -> None:
    with suppress(ValueError):  # it was closed
        for line in output:
            lines.put(line.rstrip("\n"))
