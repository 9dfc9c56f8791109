#!/usr/bin/env bash
# build_client.sh [FOLDER]: the wheel of client and Spark connector, pure Python, from the broker's own sources.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
.venv/bin/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir "$folder" ./client
rm -rf client/build broker/penstock_client.egg-info
ls "$folder"/penstock_client-*.whl
