#!/usr/bin/env bash
# up.sh [NODES]: brings a cluster up, as raw processes. The kubeconfig is $STATE/pki/admin.kubeconfig.
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd); NODES=${1:-1}
STATE=${STATE:-$HERE/state}; BIN=${BIN:-$HERE/bin}
[ -e $STATE/up ] && { echo "already up, run down.sh first" >&2; exit 1; }
deadline() { [ $SECONDS -lt ${1:-120} ] || { echo "up.sh: timed out waiting for $2; see $STATE/node*/log" >&2; exit 1; }; }
T0=$(date +%s.%N); since() { awk -v a=$T0 -v b=$(date +%s.%N) 'BEGIN{printf "%.1f s", b-a}'; }
rm -rf $STATE; SECONDS=0; mkdir -p $STATE; touch $STATE/up
for k in vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops; do echo "$k=$(sysctl -n $k)"; done > $STATE/sysctl
$HERE/pki.sh $STATE/pki 10.99.0.11 $NODES
ip link add penstock-k8sbr type bridge; ip addr add 10.99.0.1/24 dev penstock-k8sbr; ip link set penstock-k8sbr up
for n in $(seq 1 $NODES); do
  ns=penstock-k8s-node$n; ip netns add $ns
  ip link add penstock-k8s$n type veth peer name eth0 netns $ns
  ip link set penstock-k8s$n master penstock-k8sbr up
  ip -n $ns addr add 10.99.0.$((10+n))/24 dev eth0; ip -n $ns link set eth0 up; ip -n $ns link set lo up
  ip -n $ns route add default via 10.99.0.1
  for m in $(seq 1 $NODES); do [ $m = $n ] || ip -n $ns route add 10.244.$m.0/24 via 10.99.0.$((10+m)); done
  ip route add 10.244.$n.0/24 via 10.99.0.$((10+n))          # host reaches pods
done
ip route add 10.96.0.0/16 via 10.99.0.11                     # host reaches services
for n in $(seq 1 $NODES); do STATE=$STATE BIN=$BIN $HERE/start_node.sh $n; done
export KUBECONFIG=$STATE/pki/admin.kubeconfig; K="$BIN/kubectl"
for n in $(seq 1 $NODES); do
  s=$STATE/node$n/fs/run/penstock-k8s
  until nsenter --net=/run/netns/penstock-k8s-node$n true && [ -s $STATE/node$n/containerd.pid ]; do deadline 180 containerd; sleep 0.1; done
  $HERE/load_image.sh $n ${IMAGES:-$HERE/images}/pause.tar
done
until $K get --raw /readyz >/dev/null 2>&1; do deadline 300 readyz; sleep 0.1; done; echo "readyz after $(since)"
$K apply -f $HERE/addons.yaml >/dev/null; echo "addons applied after $(since)"
for n in $(seq 1 $NODES); do until $K get node node$n >/dev/null 2>&1; do deadline 400 node$n; sleep 0.2; done; done
$K wait --for=condition=Ready node --all --timeout=300s >/dev/null; echo "nodes Ready after $(since)"
until $K get sa default >/dev/null 2>&1; do deadline 400 serviceaccount; sleep 0.1; done; echo "default serviceaccount after $(since)"
xargs -a $STATE/sysctl sysctl -qw   # kubelet set some kernel-wide knobs: put them back
