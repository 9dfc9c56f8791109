#!/usr/bin/env bash
# Makes .venv and installs what requirements.lock names. Run again after the lock changed; nothing else calls for it.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "setup: installing Python packages into .venv (under a minute)"
[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
# Older ones do not know the dependency groups of pyproject.toml, which maturin asks for.
.venv/bin/pip install --quiet --upgrade "pip>=25.1"
.venv/bin/pip install --quiet --requirement requirements.lock
