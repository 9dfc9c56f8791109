#!/usr/bin/env bash
# make_venv.sh build | runtime | dev: installs that part of the locked packages into .venv, which it creates when missing: what
# compiles the native module; what the broker and its client need; tools for tests and checks, too.
set -euo pipefail
cd "$(dirname "$0")/.."
part=$1
stamp=.venv/.$part
if [ "$stamp" -nt requirements.lock ]; then exit; fi

[ -x .venv/bin/python ] || "${PYTHON:-python3}" -m venv .venv
if [ "$part" = build ]; then
    # Older ones do not know the dependency groups of pyproject.toml, which maturin asks for.
    .venv/bin/pip install --quiet --constraint requirements.lock "pip>=25.1" maturin
elif [ "$part" = runtime ]; then
    .venv/bin/python tools/list_requirements.py runtime > .venv/runtime.txt
    .venv/bin/pip install --quiet --constraint requirements.lock --requirement .venv/runtime.txt
else
    echo "setup: installing tools for tests and checks into .venv (under a minute)"
    .venv/bin/pip install --quiet --requirement requirements.lock
fi
touch "$stamp"
