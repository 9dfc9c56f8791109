#!/usr/bin/env bash
# load_image.sh N FILE...: imports image archives into the containerd of node N.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); STATE=${STATE:-$HERE/state}; n=$1; shift
init=$(pgrep -P $(cat $STATE/node$n/pid))
for i in $(seq 100); do nsenter -t $init -m -p ctr -n k8s.io version >/dev/null 2>&1 && break; sleep 0.1; done
for f; do nsenter -t $init -m -p ctr -n k8s.io images import "$(realpath "$f")"; done   # absolute: nsenter -m changes directory
