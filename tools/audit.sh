#!/usr/bin/env bash
# Holds the Rust crates to deny.toml: licences, where they come from, versions; and known vulnerabilities, whose list is
# fetched from the network. Without a network it fails, unless AUDIT_OFFLINE=1 leaves that part out. Installs cargo-deny
# where it is missing, some minutes on two cores.
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
elif [ "${AUDIT_OFFLINE:-}" = 1 ]; then
    echo "audit: the list of known vulnerabilities cannot be fetched; that part was not checked"
else
    echo "audit: the list of known vulnerabilities cannot be fetched; connect to the network, or leave it out with AUDIT_OFFLINE=1" >&2
    exit 1
fi
