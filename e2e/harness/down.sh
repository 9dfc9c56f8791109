#!/usr/bin/env bash
# down.sh: kills the nodes (one process each: the rest dies with its pid namespace) and removes what up.sh made.
HERE=$(cd "$(dirname "$0")" && pwd); STATE=${STATE:-$HERE/state}
for f in $STATE/node*/pid; do [ -s $f ] && kill -9 $(cat $f) 2>/dev/null; done
for f in $STATE/node*/pid; do [ -s $f ] && while kill -0 $(cat $f) 2>/dev/null; do sleep 0.1; done; done
sleep 0.5
ip -o netns list 2>/dev/null | awk '/^penstock-k8s-/{print $1}' | xargs -r -n1 ip netns del
ip -o link show 2>/dev/null | awk -F': ' '/^[0-9]+: penstock-k8s/{print $2}' | cut -d@ -f1 | xargs -r -n1 ip link del 2>/dev/null
for c in /sys/fs/cgroup/*/penstock-k8s; do [ -d $c ] && find $c -depth -type d -exec rmdir {} \; 2>/dev/null; done
[ -s $STATE/sysctl ] && xargs -a $STATE/sysctl sysctl -qw
rm -f $STATE/up
exit 0
