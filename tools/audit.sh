#!/usr/bin/env bash
# Holds the Rust crates to deny.toml: licences, where they come from, versions; and known vulnerabilities, where the list of
# them can be had from the network. Installs cargo-deny where it is missing, some minutes on two cores.
set -euo pipefail
cd "$(dirname "$0")/.."

if ! command -v cargo-deny > /dev/null; then
    echo "audit: installing cargo-deny"
    cargo install --quiet --locked cargo-deny@0.20.2
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi
cargo deny --locked --log-level error check bans licenses sources
if cargo deny --locked fetch db 2> /dev/null; then
    cargo deny --locked --log-level error check --disable-fetch advisories
else
    echo "audit: the list of known vulnerabilities cannot be had from here; that part was not checked"
fi
