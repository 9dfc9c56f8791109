#!/usr/bin/env bash
# Every check that runs nothing of ours, all of them even when one fails; ends with 1 if any did.
set -uo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=()

check() {
    echo "== $*"
    "$@" || failed+=("$*")
}

check cargo fmt --all --check
check cargo clippy --workspace --all-targets --features penstock-serve/fuzz --locked --quiet -- -D warnings
check "$bin/ruff" format --check --quiet .
check "$bin/ruff" check --quiet .
check "$bin/mypy"
check env PYTHONPATH=broker:operator "$bin/lint-imports"
check env MYPYPATH=broker "$bin/stubtest" penstock._core
check "$bin/python" tools/check_licences.py
check "$bin/python" -m pytest tests/house --quiet

if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
