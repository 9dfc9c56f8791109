#!/usr/bin/env bash
# start_node.sh N: starts node N of a cluster made by up.sh, or starts it again; its disk stays as it is.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); STATE=${STATE:-$HERE/state}; BIN=${BIN:-$HERE/bin}; n=$1
role=agent; [ $n = 1 ] && role=server
mkdir -p $STATE/node$n; rm -f $STATE/node$n/*.pid
setsid nsenter --net=/run/netns/penstock-k8s-node$n \
  unshare --mount --pid --uts --ipc --fork --kill-child=SIGKILL \
  bash $HERE/node.sh $n $STATE $BIN $role </dev/null >/dev/null 2>$STATE/node$n/unshare.log &
echo $! > $STATE/node$n/pid
