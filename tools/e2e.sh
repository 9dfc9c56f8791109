#!/usr/bin/env bash
# e2e.sh [FILES]: the scenarios on a real Kubernetes, one line each; without FILES all of them. E2E_PROVIDER says on which
# (harness, kind, existing); the harness is built while the images are, and taken down at the end. With a commit in
# E2E_PREVIOUS there are more scenarios, with images of that commit.
set -euo pipefail
cd "$(dirname "$0")/.."
provider=${E2E_PROVIDER:-harness}
export E2E_IMAGES=${E2E_IMAGES:-$PWD/dist/images}

if [ "$provider" = harness ]; then
    export IMAGES=${IMAGES:-$PWD/e2e/harness/images}
    log=${TMPDIR:-/tmp}/penstock-harness.$$.log
    e2e/harness/build.sh > "$log" 2>&1 &
    harness=$!
    trap 'kill $harness 2> /dev/null || true' EXIT
    tools/build_wheels.sh dist
    wait "$harness" || { cat "$log" >&2; exit 1; }
    trap 'python3 e2e/cluster.py down --provider harness' EXIT
    cat "$log"
    if ! command -v buildah > /dev/null; then
        apt-get -qq -o DPkg::Lock::Timeout=600 install -y --no-install-recommends buildah > /dev/null
    fi
    export BASE_ARCHIVE=$IMAGES/python.tar
else
    tools/build_wheels.sh dist
fi
tools/build_images.sh "$E2E_IMAGES"
if [ -n "${E2E_PREVIOUS:-}" ]; then
    export E2E_PREVIOUS_FOLDER=$PWD/dist/previous
    tools/build_previous.sh "$E2E_PREVIOUS" "$E2E_PREVIOUS_FOLDER"
fi
.venv/bin/python -m pytest --timeout 900 --quiet --no-header -s -p no:cacheprovider --exitfirst "${@:-e2e}"
if [ "$provider" != kind ]; then
    if docker info > /dev/null 2>&1 || podman info > /dev/null 2>&1; then
        echo "kind: not run; E2E_PROVIDER=kind runs the same scenarios on it"
    else
        echo "kind: not run, no container engine"
    fi
fi
