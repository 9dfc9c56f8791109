#!/usr/bin/env bash
# lint_charts.sh: helm lint, strict, and every values file in the charts' folders ci/ rendered; each field of it is one that the
# oldest Kubernetes we promise knows. With KUBECONFIG set to a cluster
# that has the kinds, each is also given to its API server, which keeps nothing of it (a server-side dry run).
set -euo pipefail
cd "$(dirname "$0")/.."
for chart in penstock-operator penstock; do
    # Objects of the Prometheus operator, whose kinds a cluster for tests lacks.
    helm template check "charts/$chart" --api-versions monitoring.coreos.com/v1 | .venv/bin/python tools/check_fields.py
    for values in "charts/$chart"/ci/*-values.yaml; do
        helm lint --strict --quiet "charts/$chart" --values "$values"
        rendered=$(helm template check "charts/$chart" --values "$values")
        .venv/bin/python tools/check_fields.py <<< "$rendered"
        if [ -n "${KUBECONFIG:-}" ]; then
            kubectl apply --dry-run=server --server-side --force-conflicts -f - <<< "$rendered" > /dev/null
            echo "ok $values: $(grep -c '^kind:' <<< "$rendered") objects, taken by the API server"
        else
            echo "ok $values: $(grep -c '^kind:' <<< "$rendered") objects"
        fi
    done
done
