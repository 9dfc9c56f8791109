#!/usr/bin/env bash
# build_wheels.sh [FOLDER]: the wheels of the broker and the operator and all that they need, in the versions of the lock,
# for this machine's architecture. Images are made of them without a network. The broker's wheel is built by maturin; one
# that is in the folder already is kept when no source is newer.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-dist}
mkdir -p "$folder"
pip=.venv/bin/pip

built=$(ls -t "$folder"/penstock-*.whl 2> /dev/null | head -n 1 || true)
if [ -z "$built" ] || [ -n "$(find broker Cargo.lock pyproject.toml \( -name '*.rs' -o -name '*.py' -o -name '*.toml' \) -newer "$built" | head -n 1)" ]; then
    rm -f "$folder"/penstock-*.whl
    VIRTUAL_ENV=$PWD/.venv PATH=$PWD/.venv/bin:$PATH .venv/bin/maturin build --release --quiet --out "$folder"
fi
rm -f "$folder"/penstock_operator-*.whl
$pip wheel --quiet --no-deps --wheel-dir "$folder" ./operator
rm -rf operator/build operator/*.egg-info
# As constraints the lock only fixes versions: of the tools that it names too, nothing is fetched.
grep == requirements.lock > "$folder/constraints.txt"
$pip download --quiet --dest "$folder" --find-links "$folder" --constraint "$folder/constraints.txt" \
    --only-binary :all: "$(ls "$folder"/penstock-*.whl)[s3]" "$folder"/penstock_operator-*.whl
echo "wheels: $(ls "$folder"/*.whl | wc -l) in $folder"
