#!/usr/bin/env bash
# Generates examples/go/penstockv1 from proto/penstock/v1. Where the Go package lies is said here, by flags, so that the
# contract itself names no language. Needs Go; protoc comes with grpcio-tools in .venv.
set -euo pipefail
cd "$(dirname "$0")/.."

plugins=$(mktemp -d)
trap 'rm -rf "$plugins"' EXIT
GOBIN=$plugins go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.6
GOBIN=$plugins go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.5.1

package=example.com/penstock-client/penstockv1
arguments=(-Iproto)
for name in message messaging admin cluster backup streams staging; do
    for kind in go go-grpc; do
        arguments+=("--${kind}_opt=Mpenstock/v1/$name.proto=$package")
    done
done
PATH=$plugins:$PATH "${PYTHON:-.venv/bin/python}" -m grpc_tools.protoc "${arguments[@]}" \
    --go_out=examples/go --go_opt=module=example.com/penstock-client \
    --go-grpc_out=examples/go --go-grpc_opt=module=example.com/penstock-client \
    proto/penstock/v1/*.proto
