#!/usr/bin/env bash
# node.sh N STATE BIN ROLE (server or agent): the first process of a node, in its own mount, pid and network namespaces.
set -u
N=$1; STATE=$2; BIN=$3; ROLE=$4
NAME=node$N; IP=10.99.0.$((10+N)); SERVER=10.99.0.11; PODNET=10.244.$N
D=$STATE/$NAME; PKI=$STATE/pki; LOG=$D/log
mkdir -p $LOG; exec >$LOG/node.log 2>&1
hostname $NAME
mount --make-rprivate /
mount -t proc proc /proc
# everything a node writes goes below $D, whatever path the component thinks it uses
for p in /var/lib/kubelet /var/lib/containerd /run/containerd /var/log/pods /var/log/containers /etc/cni/net.d /var/lib/cni /run/penstock-k8s; do
  mkdir -p $p $D/fs$p; mount --bind $D/fs$p $p
done
mkdir -p $STATE/pv /tmp/hostpath_pv; chmod 1777 $STATE/pv; mount --bind $STATE/pv /tmp/hostpath_pv
mount -t tmpfs tmpfs /run/containerd
mount --bind /var/lib/kubelet /var/lib/kubelet; mount --make-rshared /var/lib/kubelet
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1
sysctl -qw net.bridge.bridge-nf-call-iptables=1
for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
  g=/sys/fs/cgroup/$c/penstock-k8s/$NAME; [ -d /sys/fs/cgroup/$c ] || continue; mkdir -p $g
  if [ $c = cpuset ]; then for q in /sys/fs/cgroup/cpuset/penstock-k8s $g; do
     cat /sys/fs/cgroup/cpuset/cpuset.cpus > $q/cpuset.cpus; cat /sys/fs/cgroup/cpuset/cpuset.mems > $q/cpuset.mems; done; fi
done
cat > /etc/cni/net.d/10-penstock.conflist <<C
{"cniVersion":"0.4.0","name":"penstock","plugins":[
 {"type":"bridge","bridge":"cni0","isGateway":true,"ipMasq":false,"hairpinMode":true,
  "ipam":{"type":"host-local","ranges":[[{"subnet":"$PODNET.0/24"}]],"routes":[{"dst":"0.0.0.0/0"}]}},
 {"type":"portmap","capabilities":{"portMappings":true}}]}
C
cat > $D/containerd.toml <<C
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:e2e"
  enable_selinux = false
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
C
cat > $D/kubelet.yaml <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $PKI/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /penstock-k8s/$NAME
failCgroupV1: false
failSwapOn: false
clusterDNS: ["10.96.0.10"]
clusterDomain: cluster.local
resolvConf: $D/resolv.conf
serializeImagePulls: false
imageGCHighThresholdPercent: 100
evictionHard: {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"}
localStorageCapacityIsolation: true
syncFrequency: 10s
nodeStatusUpdateFrequency: 4s
nodeLeaseDurationSeconds: 16
shutdownGracePeriod: 0s
maxPods: 110
logging: {flushFrequency: 1s}
C
echo "nameserver 127.0.0.1" > $D/resolv.conf
cat > $D/proxy.yaml <<C
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $PKI/proxy.kubeconfig}
mode: ${PROXY_MODE:-nftables}
clusterCIDR: 10.244.0.0/16
hostnameOverride: $NAME
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 0s, syncPeriod: 10s}
nftables: {minSyncPeriod: 0s, syncPeriod: 10s}
C
export PATH=$BIN:$PATH
run() { n=$1; shift; "$@" >$LOG/$n.log 2>&1 & echo $! > $D/$n.pid; }
run containerd containerd -c $D/containerd.toml
if [ $ROLE = server ]; then
  run etcd $BIN/etcd --data-dir $D/etcd --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380 --log-level warn
  run kube-apiserver $BIN/kube-apiserver --etcd-servers=http://127.0.0.1:2379 --secure-port=6443 \
    --advertise-address=$SERVER --bind-address=0.0.0.0 --allow-privileged=true \
    --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
    --client-ca-file=$PKI/ca.crt --tls-cert-file=$PKI/apiserver.crt --tls-private-key-file=$PKI/apiserver.key \
    --kubelet-client-certificate=$PKI/apiserver-kubelet.crt --kubelet-client-key=$PKI/apiserver-kubelet.key \
    --kubelet-preferred-address-types=InternalIP \
    --requestheader-client-ca-file=$PKI/ca.crt --requestheader-allowed-names=front-proxy-client \
    --requestheader-username-headers=X-Remote-User --requestheader-group-headers=X-Remote-Group \
    --requestheader-extra-headers-prefix=X-Remote-Extra- \
    --proxy-client-cert-file=$PKI/front-proxy.crt --proxy-client-key-file=$PKI/front-proxy.key \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local \
    --service-account-key-file=$PKI/sa.pub --service-account-signing-key-file=$PKI/sa.key \
    --enable-priority-and-fairness=false --profiling=false
  cat > $D/Corefile <<C
.:53 {
  bind $IP
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $PKI/coredns.kubeconfig harness
    ttl 2
  }
  cache 2
}
C
fi
# control plane first: the rest would only spin and log errors on two cores
until curl -sk --cacert $PKI/ca.crt https://$SERVER:6443/readyz 2>/dev/null | grep -q ok; do sleep 0.2; done
date +%s.%N > $D/readyz
if [ $ROLE = server ]; then
  run kube-controller-manager $BIN/kube-controller-manager --kubeconfig=$PKI/controller-manager.kubeconfig \
    --authentication-kubeconfig=$PKI/controller-manager.kubeconfig --authorization-kubeconfig=$PKI/controller-manager.kubeconfig \
    --bind-address=127.0.0.1 --leader-elect=false --use-service-account-credentials=true \
    --service-account-private-key-file=$PKI/sa.key --root-ca-file=$PKI/ca.crt \
    --cluster-signing-cert-file=$PKI/ca.crt --cluster-signing-key-file=$PKI/ca.key \
    --allocate-node-cidrs=false --enable-hostpath-provisioner=true \
    --node-monitor-period=2s --node-monitor-grace-period=20s
  run kube-scheduler $BIN/kube-scheduler --kubeconfig=$PKI/scheduler.kubeconfig \
    --authentication-kubeconfig=$PKI/scheduler.kubeconfig --authorization-kubeconfig=$PKI/scheduler.kubeconfig \
    --bind-address=127.0.0.1 --leader-elect=false
  run coredns $BIN/coredns -conf $D/Corefile
  # the hostPath provisioner makes 0750 root directories; non-root pods must be able to write
  ( while sleep 0.3; do chmod -f 0777 /tmp/hostpath_pv/*; done ) 2>/dev/null &
fi
run kubelet $BIN/kubelet --config=$D/kubelet.yaml --kubeconfig=$PKI/$NAME.kubeconfig \
  --hostname-override=$NAME --node-ip=$IP --root-dir=/var/lib/kubelet
run kube-proxy $BIN/kube-proxy --config=$D/proxy.yaml
trap 'exit 0' TERM
while :; do sleep 3600 & wait $!; done
