#!/bin/bash
# writes go.mod for the multi-call binary:  gen.sh v1.34.4
set -e
V=$1; S=v0.${V#v1.}
MOD=$(go env GOMODCACHE)
go mod download k8s.io/kubernetes@$V
K=$MOD/cache/download/k8s.io/kubernetes/@v/$V.mod
{
echo "module penstock.dev/harness/kube"
echo
grep '^go ' $K
echo
echo "require k8s.io/kubernetes $V"
echo "require github.com/coredns/coredns ${COREDNS:-v1.14.5}"
echo "require go.etcd.io/etcd/server/v3 ${ETCD:-v3.6.13}"
echo
echo "replace ("
grep -E '=> ./staging' $K | awk -v s=$S '{print "\t"$1" => "$1" "s}'
echo ")"
} > go.mod
