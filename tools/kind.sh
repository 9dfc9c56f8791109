#!/usr/bin/env bash
# kind.sh: a kind cluster with Penstock in it, on this machine: makes the cluster, builds and loads the images, installs both
# charts and says what to do next. Run again it goes on where it stopped. It needs kind, helm, kubectl and docker or podman.
set -euo pipefail
cd "$(dirname "$0")/.."
for program in kind helm kubectl; do
    command -v "$program" > /dev/null || { echo "kind: $program is not on the PATH" >&2; exit 1; }
done
export KIND_KUBECONFIG=${KIND_KUBECONFIG:-$PWD/kind.kubeconfig}
KUBECONFIG=$(python3 e2e/cluster.py up --provider kind | tail -n 1)
export KUBECONFIG
python3 e2e/cluster.py load --provider kind dist/images/penstock.tar dist/images/penstock-operator.tar
helm upgrade --install penstock-operator charts/penstock-operator --wait --timeout 120s > /dev/null
helm upgrade --install mq charts/penstock > /dev/null
kubectl wait --for=condition=Ready psc/mq --timeout=180s
cat << NEXT

A broker is running. What next:
    export KUBECONFIG=$KUBECONFIG
    kubectl apply -f examples/kubernetes/orders.yaml
    kubectl wait --for=condition=Ready --timeout=180s -f examples/kubernetes/orders.yaml
    kubectl apply -f examples/kubernetes/job.yaml
    kubectl wait --for=condition=Complete --timeout=120s job/orders && kubectl logs job/orders
    helm status mq          how to get the password and connect from here
And when you are done:
    python3 e2e/cluster.py down --provider kind
NEXT
