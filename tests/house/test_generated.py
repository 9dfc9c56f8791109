"""Holds the committed generated code to its sources: generating again must give the same bytes."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "broker" / "penstock" / "v1"


def test_generating_again_gives_what_is_committed(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "tools/generate_protobuf.py", str(tmp_path)], cwd=ROOT, check=True)

    generated = {path.name: path.read_bytes() for path in (tmp_path / "penstock" / "v1").iterdir()}
    committed = {
        path.name: path.read_bytes() for path in COMMITTED.iterdir() if path.name in generated or "_pb2" in path.name
    }
    assert sorted(committed) == sorted(generated)
    different = [name for name in generated if generated[name] != committed[name]]
    assert different == [], "run `make proto`"


def test_the_verbs_for_threads_are_those_for_asyncio(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "tools/generate_client.py", str(tmp_path)], cwd=ROOT, check=True)

    client = ROOT / "broker" / "penstock" / "client"
    generated = list(tmp_path.iterdir())
    different = [path.name for path in generated if path.read_bytes() != (client / path.name).read_bytes()]
    assert len(generated) == 4
    assert different == [], "run `make verbs`"
