#!/usr/bin/env bash
# Says what is missing before a long build fails for the lack of it: Python 3.11, a C compiler, Rust.
# Ends with 1 and one line per missing thing; prints nothing when all is there.
set -euo pipefail

python=${PYTHON:-python3}
rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")
missing=0

complain() {
    echo "setup: $1" >&2
    missing=1
}

"$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 11))' 2> /dev/null \
    || complain "Python 3.11 or newer is needed as '$python'; name another one with PYTHON=python3.12 make setup"
"$python" -c 'import venv, ensurepip' 2> /dev/null \
    || complain "'$python' has no venv module; on Debian and Ubuntu it is the package python3-venv"
command -v cc > /dev/null || complain "a C compiler is needed as 'cc'; on Debian and Ubuntu it is the package gcc"
if command -v cargo > /dev/null && command -v rustc > /dev/null; then
    rust_found=$(rustc --version | cut -d' ' -f2)
    [ "$(printf '%s\n' "$rust_wanted" "$rust_found" | sort -V | head -n1)" = "$rust_wanted" ] \
        || complain "Rust $rust_wanted or newer is needed, found $rust_found; rustup update stable"
else
    complain "Rust $rust_wanted or newer is needed: cargo and rustc are not on the PATH"
fi
exit "$missing"
