"""Puts known faults back, one at a time, into a copy of this checkout, and checks that the tests find each.

    python -m tools.put_faults_back [WORD...]

With words, only faults whose names have one of them. For each it prints how long it took, and how much of that was the
build, the command that found it and the tests that failed. It exits with 1 when a fault is not found, when its text is
stale, when the edited tree cannot be built, or when a command fails without any fault. The copy is in target/faults and
keeps its build. Rust is built there; Python runs from the copy's sources with this checkout's native module, so a fault
in Rust needs a test of the crates.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from tools.known_faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "faults"
SECONDS_MAX = 900
# Exit statuses of `cargo test` and pytest when tests ran and failed; others mean that they could not run.
FAILED = {"cargo": 101, "{python}": 1}
# As many as in `make test-crash`.
CASES = {"REPLAY_CASES": "12000", "SIM_SEEDS": "2000"}
# A test that kills its process names no other.
KILLED_BY = re.compile(r"\((signal: [^)]+)\)")
NAMES_OF_FAILED = re.compile(r"^(?:---- (\S+) stdout ----|FAILED (\S+))", re.MULTILINE)


def main(words: list[str]) -> int:
    started = time.monotonic()
    # Faults of one crate follow each other: cargo rebuilds only what the last edit and this one touch.
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    chosen.sort(key=lambda fault: fault.command)
    copy_tree()
    gone = [fault for fault in chosen if (COPY / fault.file).read_text().count(fault.old) != 1]
    for fault in gone:
        print(f"error: {fault.name}: its text is not there exactly once in {fault.file}; write it anew")
    failing = [command for command in sorted({fault.command for fault in chosen}) if not passes(command)]
    if gone or failing:
        return 1
    unseen = [fault for fault in chosen if not is_found(fault)]
    print(f"{len(chosen) - len(unseen)} of {len(chosen)} faults are found in {seconds_since(started)}")
    return 1 if unseen or not chosen else 0


def copy_tree() -> None:
    """Update the copy; unchanged files keep their times, so that little is built."""
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    native = [str(path.relative_to(ROOT)) for path in (ROOT / "broker" / "penstock").glob("_core*.so")]
    names = {name for name in (*listed.stdout.split("\0"), *native) if (ROOT / name).is_file()}
    for folder in ("broker", "tests"):
        for path in (COPY / folder).rglob("*"):
            if path.is_file() and str(path.relative_to(COPY)) not in names:
                path.unlink()
    for name in sorted(names):
        source, copy = ROOT / name, COPY / name
        if copy.exists() and copy.read_bytes() == source.read_bytes():
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, copy)


def passes(command: str) -> bool:
    """Return whether a command passes without any fault: only then is its failure meaningful."""
    started = time.monotonic()
    done = run(command)
    if done.status == 0:
        print(f"passes without any fault in {seconds_since(started)}: {shown(command)}", flush=True)
    else:
        print(f"error: fails without any fault: {shown(command)}\n{done.output[-2_000:]}", flush=True)
    return done.status == 0


def is_found(fault: Fault) -> bool:
    """Return whether the command fails with the fault, and not because the edit cannot be built."""
    path = COPY / fault.file
    sound = path.read_text()
    path.write_text(sound.replace(fault.old, fault.new))
    started = time.monotonic()
    try:
        built = run(build_of(fault))
        if built.status != 0:
            print(f"error: {fault.name}: cannot be built\n{built.output[-2_000:]}", flush=True)
            return False
        build = seconds_since(started)
        done = run(fault.command)
    finally:
        path.write_text(sound)
    found = done.status is None or done.status == FAILED[shlex.split(fault.command)[0]]
    print(f"{'found' if found else 'UNSEEN'} in {seconds_since(started)} ({build} to build): {fault.name}")
    print(f"    by {shown(fault.command)}")
    for name in done.failed_tests():
        if name not in fault.command:
            print(f"    {name}")
    if killed := KILLED_BY.search(done.output):
        print(f"    ended by {killed[1]}")
    if done.status is None:
        print(f"    did not end within {SECONDS_MAX} s")
    elif not found:
        print(f"    exit status {done.status}")
    sys.stdout.flush()
    return found


def build_of(fault: Fault) -> str:
    """Return the command that fails when the edit cannot run."""
    if fault.command.startswith("cargo "):
        return f"{fault.command} --no-run"
    return f"{{python}} -m ruff check --isolated --no-cache --select F821,F823 {fault.file}"


def shown(command: str) -> str:
    return command.replace("{python}", "python")


def seconds_since(started: float) -> str:
    return f"{time.monotonic() - started:.1f} s"


@dataclass(frozen=True)
class Done:
    """Result of a command; without a status it was killed."""

    status: int | None
    output: str

    def failed_tests(self) -> list[str]:
        return list(
            dict.fromkeys(of_cargo or of_pytest for of_cargo, of_pytest in NAMES_OF_FAILED.findall(self.output))
        )


def run(command: str) -> Done:
    """Run a command in the copy, and kill its processes on a timeout."""
    arguments = [part.replace("{python}", sys.executable) for part in shlex.split(command)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(COPY / part) for part in ("broker", "operator"))}
    environment.pop("CARGO_TARGET_DIR", None)
    for name, count in CASES.items():
        environment.setdefault(name, count)
    process = subprocess.Popen(
        arguments,
        cwd=COPY,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=SECONDS_MAX)
        return Done(process.returncode, output)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return Done(None, process.communicate()[0])
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        raise


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
