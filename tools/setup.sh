#!/usr/bin/env bash
# setup.sh PROFILE: makes .venv with what `make run` needs: Python packages, the native module in that Cargo profile (quick or
# release) and the `penstock` command. Python sources stay where they are and need no further build. Packages are
# installed while the module is compiled. Tools for tests and checks come later, by tools/make_venv.sh dev.
set -euo pipefail
cd "$(dirname "$0")/.."
profile=$1

tools/check_machine.sh
# A second setup at the same time waits: they would take each other's files away.
mkdir -p target
exec 9> target/.setup-lock
flock 9
tools/make_venv.sh build
if [ -d "target/$profile" ]; then
    echo "setup: compiling what changed in the native module ($profile profile)"
else
    echo "setup: compiling the native module with its dependencies ($profile profile), which takes some minutes"
fi
tools/make_venv.sh runtime &
packages=$!
export PIP_QUIET=1 VIRTUAL_ENV=$PWD/.venv
compiled=0
.venv/bin/maturin develop --profile "$profile" --quiet --skip-install || compiled=$?
wait "$packages"
[ "$compiled" -eq 0 ] || exit "$compiled"
# Everything is compiled and installed by now: this adds the package itself and its command.
# Without a group named, maturin would install the tools for tests, too.
.venv/bin/maturin develop --profile "$profile" --quiet --group build
