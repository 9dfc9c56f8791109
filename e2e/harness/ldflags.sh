#!/usr/bin/env bash
# ldflags.sh VERSION: the version stamp that kubelet and API server print and check.
V=$1; M=$(echo $V | cut -d. -f1 | tr -d v); N=$(echo $V | cut -d. -f2)
P=k8s.io/component-base/version
D=$(date -u +%Y-%m-%dT%H:%M:%SZ)
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  printf -- "-X %s.gitVersion=%s -X %s.gitMajor=%s -X %s.gitMinor=%s -X %s.gitTreeState=clean -X %s.buildDate=%s " $p $V $p $M $p $N $p $p $D
done
