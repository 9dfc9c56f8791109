"""Puts known faults back, one at a time, into a copy of this checkout, and sees that the tests find each.

    python -m tools.put_faults_back [WORD...]

With words, only faults whose names have one of them. Ends with 1 when a fault stays unseen, when its text is no longer
there, when the edited tree does not compile, or when a command fails without any fault. The copy is in target/faults
and keeps its build. Rust is built there; Python runs from the copy's sources with this checkout's native module, so a
fault in Rust needs a test of the crates.
"""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from tools.known_faults import FAULTS, Fault

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "target" / "faults"
SECONDS_MAX = 1_800


def main(words: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name for word in words)]
    copy_tree()
    gone = [fault for fault in chosen if (COPY / fault.file).read_text().count(fault.old) != 1]
    for fault in gone:
        print(f"error: {fault.name}: its text is not there exactly once in {fault.file}; write it anew")
    failing = [command for command in sorted({fault.command for fault in chosen}) if not run(command)]
    for command in failing:
        print(f"error: fails without any fault: {command}")
    if gone or failing:
        return 1
    unseen = [fault for fault in chosen if not is_found(fault)]
    print(f"{len(chosen) - len(unseen)} of {len(chosen)} faults are found")
    return 1 if unseen or not chosen else 0


def copy_tree() -> None:
    """Brings the copy up to date; files that did not change keep their times, so that little is built."""
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


def is_found(fault: Fault) -> bool:
    """Whether the command fails while the fault is there."""
    path = COPY / fault.file
    sound = path.read_text()
    path.write_text(sound.replace(fault.old, fault.new))
    try:
        if fault.command.startswith("cargo test") and not run(f"{fault.command} --no-run"):
            print(f"error: {fault.name}: does not compile")
            return False
        found = not run(fault.command)
    finally:
        path.write_text(sound)
    print(f"{'found' if found else 'UNSEEN'}: {fault.name}", flush=True)
    return found


def run(command: str) -> bool:
    """Whether it succeeds in the copy."""
    arguments = [part.replace("{python}", sys.executable) for part in shlex.split(command)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(COPY / part) for part in ("broker", "operator"))}
    environment.pop("CARGO_TARGET_DIR", None)
    try:
        done = subprocess.run(
            arguments, check=False, cwd=COPY, env=environment, capture_output=True, timeout=SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
