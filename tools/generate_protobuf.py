"""Generates broker/penstock/v1 from proto/penstock/v1: Python messages with their stubs, and the descriptors.

The output is committed, so that builds do not need protoc; a test generates again and compares. Run it with the
grpcio-tools version that pyproject.toml pins: another one writes other bytes.
"""

import sys
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
SERVICES = ("messaging.proto", "admin.proto", "streams.proto", "staging.proto")
DESCRIPTORS = "penstock/v1/descriptors.binpb"


def generate(out: Path) -> None:
    """Write the generated files below `out`, which stands for broker/."""
    folder = PROTO / "penstock" / "v1"
    sources = sorted(str(path) for path in folder.glob("*.proto"))
    (out / "penstock" / "v1").mkdir(parents=True, exist_ok=True)
    include = f"-I{PROTO}"
    run(include, f"--python_out={out}", f"--pyi_out={out}", *sources)
    run(include, f"--grpc_python_out={out}", *(str(folder / name) for name in SERVICES))
    run(include, "--include_imports", f"--descriptor_set_out={out / DESCRIPTORS}", *sources)


def run(*arguments: str) -> None:
    code = protoc.main(["protoc", *arguments])
    if code != 0:
        raise SystemExit(f"protoc ended with {code}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "broker")
