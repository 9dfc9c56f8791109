#!/usr/bin/env bash
# Resolves the ranges of pyproject.toml in a fresh environment and writes requirements.lock from what was installed.
# Only names and versions are kept: where packages come from is each machine's own affair.
set -euo pipefail
cd "$(dirname "$0")/.."

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
python3 tools/list_requirements.py all > "$folder/requirements.txt"
"$folder/venv/bin/pip" install --quiet --requirement "$folder/requirements.txt"
{
    sed -n '/^#/p' requirements.lock
    "$folder/venv/bin/pip" list --format=freeze | grep --invert-match --extended-regexp '^(pip|penstock)=' | sort --ignore-case
} > "$folder/requirements.lock"
mv "$folder/requirements.lock" requirements.lock
echo "requirements.lock: $(grep --count == requirements.lock) packages"
