#!/usr/bin/env bash
# Fuzzes every target of fuzz/ in turn, for the seconds given (60 unless told), from the seeds kept there; what it finds
# on the way goes to corpus/.
# Needs a nightly toolchain and cargo-fuzz: cargo install cargo-fuzz.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${1:-60}
for target in $(cargo +nightly fuzz list); do
    echo "== $target, $seconds s"
    mkdir -p "corpus/$target"
    cargo +nightly fuzz run "$target" "corpus/$target" "seeds/$target" -- -max_total_time="$seconds"
done
