#!/usr/bin/env bash
# Builds the native module (release) and puts it and the `penstock` command into .venv, in place: Python sources stay
# where they are and need no further build.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -d target/release ]; then
    echo "setup: building the native module (what changed since the last time, mostly under a minute)"
else
    echo "setup: building the native module, the first time with all it depends on (2 to 4 minutes on 2 cores)"
fi
PIP_QUIET=1 VIRTUAL_ENV=$PWD/.venv .venv/bin/maturin develop --release --quiet
