#!/usr/bin/env bash
# build_sbom.sh FOLDER: penstock.cdx.json and penstock-operator.cdx.json, out of the wheels in FOLDER: the same lists as in
# the images, which are made by the same steps.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$1
packages=$(mktemp -d)
trap 'rm -rf "$packages"' EXIT

for installed in 'penstock[s3]' penstock-operator; do
    root=${installed%[*}
    .venv/bin/pip install --quiet --no-index --find-links "$folder" --no-compile --target "$packages/$root" "$installed"
    .venv/bin/python tools/make_sbom.py --packages "$packages/$root" --root "$root" --output "$folder/$root.cdx.json"
done
