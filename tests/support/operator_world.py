"""The operator on fakes, run by hand: Kubernetes' events reach the store at once, and `settle` reconciles until done.

Time stands still while it settles. The operator can be away (`stop`) and come back (`start`), as a new process that has
listed only some objects so far.
"""

from collections.abc import Iterable
from typing import Any, cast

from penstock import Connection
from penstock_operator.desired.naming import CLUSTER_LABEL
from penstock_operator.engine import Key, Store, World
from penstock_operator.engine.backup import BackupReconciler
from penstock_operator.engine.census import Census
from penstock_operator.engine.cluster import ClusterReconciler
from penstock_operator.engine.intake import gone, seen
from penstock_operator.engine.schedule import ScheduleReconciler
from penstock_operator.engine.topology import TopologyReconciler
from penstock_operator.engine.workers import FAULTS, Later
from penstock_operator.links import Brokers, Kubernetes
from support.admin_fake import FakeBroker
from support.kubernetes_fake import FakeKubernetes, Manifest, key_of

TURNS_MAX = 200
ATTEMPTS = 10
# Long enough for what was listed before to be listed again, and for a password that was set to be tried.
SETTLED_SECONDS = 20.0


class OperatorWorld:
    """One operator, one Kubernetes, and a broker behind every Cluster."""

    def __init__(self, namespaces: tuple[str, ...] = ()) -> None:
        self.kubernetes = FakeKubernetes()
        self.broker: FakeBroker | None = None
        self.store = Store()
        self.waiting: list[Key] = []
        self.kubernetes.on_change = self.show
        self._is_away = False
        self.seconds = 0.0
        brokers = Brokers(self.clock, lambda address: cast(Connection, self._broker().connect(address)))
        kubernetes = cast(Kubernetes, self.kubernetes)
        self.world = World(kubernetes, brokers, self.store, lambda key, _: self.add(key), self.clock)
        self.world.now = lambda: "2026-01-01T00:00:00Z"
        self.world.password = lambda: "generated"
        self.world.good_until = lambda host, port, tls: "Jan  1 00:00:00 2030 GMT"
        self.census = Census(self.world, namespaces)
        self._cluster = ClusterReconciler(self.world)
        self._topology = TopologyReconciler(self.world, self.census)
        self._backup = BackupReconciler(self.world)
        self._schedule = ScheduleReconciler(self.world)

    def clock(self) -> float:
        return self.seconds

    def add(self, key: Key) -> None:
        if key not in self.waiting:
            self.waiting.append(key)

    def apply(self, kind: str, name: str, spec: dict[str, Any], **metadata: Any) -> Manifest:
        """Apply one of our objects, as the API server would store it."""
        if kind != "Cluster" and "connectionSecretRef" not in spec:
            spec = {"clusterRef": {"name": "mq"}, **spec}
        manifest = {
            "apiVersion": "penstock.dev/v1alpha1",
            "kind": kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        return self.kubernetes.add(manifest)

    def start_cluster(self, **spec: Any) -> None:
        """Start a Cluster called mq whose pod is ready, with everything that follows."""
        self.apply("Cluster", "mq", {"image": "penstock:test", **spec})
        self.settle()
        self.run_pod()
        self.settle()

    def stop(self) -> None:
        """Stop the operator: it sees no change, and forgets all that it knew."""
        self._is_away = True
        self.waiting.clear()
        for key in self.store.all():
            self.store.drop(key)

    def start(self, kinds: Iterable[str] | None = None) -> None:
        """Start it again. With kinds, only their lists have arrived; `deliver` brings the others."""
        self._is_away = False
        seen = {kind for kind, _, _ in self.kubernetes.objects} if kinds is None else set(kinds)
        for kind in sorted(seen):
            self.deliver(kind)

    def deliver(self, kind: str, *names: str) -> None:
        """Show objects of a kind to the operator, as a first list or a part of it does."""
        for (each, _, name), manifest in list(self.kubernetes.objects.items()):
            if each == kind and (not names or name in names):
                self.show(manifest, is_gone=False)

    def run_pod(self, uid: str = "pod-1", claim: str = "claim-1") -> None:
        """Do the work of Kubernetes' own controllers."""
        labels = {"penstock.dev/cluster": "mq", "controller-revision-hash": "1"}
        ready = {"type": "Ready", "status": "True"}
        workload = self.kubernetes.objects["StatefulSet", "default", "mq"]
        workload["status"] = {"observedGeneration": workload["metadata"]["generation"], "updateRevision": "1"}
        claimed: Manifest = {"kind": "PersistentVolumeClaim", "metadata": {"name": "data-mq-0", "uid": claim}}
        claimed["metadata"]["labels"] = {"penstock.dev/cluster": "mq"}
        claimed |= {
            "spec": {"resources": {"requests": {"storage": "10Gi"}}},
            "status": {"phase": "Bound", "capacity": {"storage": "10Gi"}},
        }
        self.kubernetes.add(claimed)
        self.kubernetes.run_controller(workload)
        self.kubernetes.add(
            {
                "kind": "Pod",
                "metadata": {
                    "name": "mq-0",
                    "uid": uid,
                    "labels": labels,
                    "ownerReferences": [
                        {"kind": "StatefulSet", "name": "mq", "uid": workload["metadata"]["uid"], "controller": True}
                    ],
                },
                "status": {"conditions": [ready]},
            }
        )
        endpoint = {"targetRef": {"kind": "Pod", "name": "mq-0"}, "conditions": {"ready": True}}
        labels = {"kubernetes.io/service-name": "mq"}
        slice_ = {"kind": "EndpointSlice", "metadata": {"name": "mq-abcde", "labels": labels}, "endpoints": [endpoint]}
        self.kubernetes.add(slice_)
        if self.broker is None:
            self.broker = FakeBroker.new("generated")
        self.add(Key("Cluster", "default", "mq"))

    def settle(self) -> None:
        """Reconcile every object that changed, and those that wait for others some more times."""
        self.seconds += SETTLED_SECONDS
        attempts: dict[Key, int] = {}
        for _ in range(TURNS_MAX):
            if not self.waiting:
                return
            key = self.waiting.pop(0)
            count = attempts[key] = attempts.get(key, 0) + 1
            try:
                self.reconcile(key, count)
            except (Later, *FAULTS):
                if count < ATTEMPTS:
                    self.add(key)
        raise AssertionError(f"still not settled: {self.waiting}")

    def reconcile(self, key: Key, attempts: int = 0) -> float | None:
        if key.kind == "Cluster":
            return self._cluster.reconcile(key)
        if key.kind == "Backup":
            return self._backup.reconcile(key)
        if key.kind == "ScheduledBackup":
            return self._schedule.reconcile(key)
        return self._topology.reconcile(key, attempts)

    def look_again(self) -> None:
        """Resync all of our objects."""
        for key in self.store.all():
            if key.kind not in {"Secret", "Namespace"}:
                self.add(key)
        self.settle()

    def condition(self, kind: str, name: str, type_: str = "Ready") -> tuple[str, str]:
        """Return status and reason."""
        found = self.kubernetes.get(kind, name)
        assert found is not None, f"{kind} {name} is gone"
        for each in found.get("status", {}).get("conditions", []):
            if each["type"] == type_:
                return each["status"], each["reason"]
        return "", ""

    def _broker(self) -> FakeBroker:
        assert self.broker is not None
        return self.broker

    def show(self, manifest: Manifest, is_gone: bool) -> None:
        """Show a change to the operator, as its watches do."""
        if self._is_away:
            return
        key = key_of(manifest)
        if key.kind == "Job":
            self._wake_owners(manifest)
        if manifest.get("apiVersion") != "penstock.dev/v1alpha1" and key.kind not in {"Secret", "Namespace"}:
            return
        if key.kind == "Secret" and CLUSTER_LABEL not in (manifest["metadata"].get("labels") or {}):
            is_gone = True  # the watch of Secrets sees those with our label
        woken = gone(self.store, key) if is_gone else seen(self.store, manifest)
        for each in woken:
            if each.kind != "Secret":
                self.add(each)

    def _wake_owners(self, job: Manifest) -> None:
        """Wake the Backup of a Job, as the watch of Jobs does."""
        for each in job["metadata"].get("ownerReferences", []):
            key = Key(each["kind"], job["metadata"]["namespace"], each["name"])
            if self.store.get(key) is not None:
                self.add(key)
