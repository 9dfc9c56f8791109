#!/usr/bin/env bash
# pki.sh DIR ADDRESS NODES: a CA, certificates of servers and clients, kubeconfigs.
set -euo pipefail
D=$1; IP=$2; NODES=$3; mkdir -p "$D"; cd "$D"
key() { openssl ecparam -genkey -name prime256v1 -noout -out "$1.key"; }
key ca
openssl req -x509 -new -key ca.key -subj /CN=penstock-harness -days 3650 -out ca.crt 2>/dev/null
sign() { # name subject [extfile-text]
  key "$1"
  openssl req -new -key "$1.key" -subj "$2" -out "$1.csr"
  openssl x509 -req -in "$1.csr" -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out "$1.crt" \
    -extfile <(printf 'keyUsage=digitalSignature\nextendedKeyUsage=%s\n%s\n' "$3" "${4:-}") 2>/dev/null
  rm -f "$1.csr"
}
sign apiserver /CN=kube-apiserver serverAuth "subjectAltName=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:10.96.0.1,IP:$IP"
sign apiserver-kubelet "/O=system:masters/CN=kube-apiserver-kubelet-client" clientAuth
sign front-proxy /CN=front-proxy-client clientAuth
sign admin "/O=system:masters/CN=admin" clientAuth
sign controller-manager /CN=system:kube-controller-manager clientAuth
sign scheduler /CN=system:kube-scheduler clientAuth
sign proxy /CN=system:kube-proxy clientAuth
sign coredns "/O=system:masters/CN=coredns" clientAuth
for n in $(seq 1 "$NODES"); do sign "node$n" "/O=system:nodes/CN=system:node:node$n" clientAuth; done
openssl genrsa -out sa.key 2048 2>/dev/null; openssl rsa -in sa.key -pubout -out sa.pub 2>/dev/null
b() { base64 -w0 "$1"; }
for u in admin controller-manager scheduler proxy coredns $(seq -f node%g 1 "$NODES"); do
cat > $u.kubeconfig <<K
apiVersion: v1
kind: Config
current-context: harness
clusters: [{name: harness, cluster: {server: "https://$IP:6443", certificate-authority-data: $(b ca.crt)}}]
users: [{name: $u, user: {client-certificate-data: $(b $u.crt), client-key-data: $(b $u.key)}}]
contexts: [{name: harness, context: {cluster: harness, user: $u}}]
K
done
