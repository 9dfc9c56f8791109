"""Reconciles a Cluster.

It makes the Secret once, repairs the children when they differ, replaces the pod when its revision is old, and writes
the status when it changes. Messages flow without it.
"""

from typing import Any

from pydantic import ValidationError

from penstock.client.errors import NotAuthenticatedError, RefusedError
from penstock_operator.desired import Owner, children
from penstock_operator.desired.access import administrator_secret, binding
from penstock_operator.desired.children import OPTIONAL
from penstock_operator.desired.cluster_status import BrokerFacts, Facts, is_pod_ready, status
from penstock_operator.desired.compare import differences
from penstock_operator.desired.conditions import Says, merged, status_of
from penstock_operator.desired.naming import ADMINISTRATOR, CLUSTER_LABEL, FINALIZER, GRPC_PORT
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.home import NotYet, authority_of, enter, owner_of, password_in
from penstock_operator.engine.retention import decide_fate
from penstock_operator.engine.volume import grow
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError, BrokerUnreachableError
from penstock_operator.links.brokers import UNREACHABLE
from penstock_operator.links.certificates import UntrustedError

Manifest = dict[str, Any]
SOON_SECONDS = 1.0
FORBIDDEN = 403


class ClusterReconciler:
    """Stateless: everything is read again each time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def reconcile(self, key: Key) -> float | None:
        manifest = self._world.store.get(key)
        if manifest is None:
            self._wake_topology(key)
            return None
        if "deletionTimestamp" in manifest["metadata"]:
            return self._finalize(key, manifest)
        try:
            owner = owner_of(manifest)
        except ValidationError as error:
            self._write(manifest, {"phase": "Failed"}, [Says("Ready", "False", "InvalidSpec", str(error))])
            return None
        if owner.spec.paused:
            self._pause(manifest)
            return None
        return self._settle(key, manifest, owner)

    def _settle(self, key: Key, manifest: Manifest, owner: Owner) -> float:
        if FINALIZER not in manifest["metadata"].get("finalizers", []):
            finalizers = [*manifest["metadata"].get("finalizers", []), FINALIZER]
            manifest = self._world.write_finalizers(manifest, finalizers)
        lacking = self._ensure_secret(owner)
        size, growth = grow(self._world, owner)
        owner = owner.with_size(size)
        missing, blocked = self._apply_children(manifest, owner)
        self._remove_unwanted(owner)
        pod = self._roll(manifest, owner)
        facts = self._look(owner, pod, growth=growth, missing=missing, blocked=blocked or lacking)
        before = manifest.get("status", {})
        found, says = status(owner, facts, before, manifest["metadata"].get("annotations", {}))
        self._write(manifest, found, says)
        self._tell_news(key, manifest, says)
        is_ready = facts.broker is not None
        waits_for_nothing = is_ready or owner.spec.replicas == 0
        if not waits_for_nothing and pod is not None and is_pod_ready(pod):
            return SOON_SECONDS
        return self._world.resync() if waits_for_nothing else 10.0

    # ------------------------------------------------------------ children

    def _ensure_secret(self, owner: Owner) -> tuple[str, str] | None:
        """Make the Secret if there is none; return the obstacle.

        Its password never changes, because the broker knows it.
        """
        world = self._world
        secret = world.store.get(Key("Secret", owner.namespace, owner.secret))
        if secret is None:
            secret = world.kubernetes.read("v1", "Secret", owner.namespace, owner.secret)
        try:
            authority = authority_of(world, owner)
            if secret is None:
                world.store.put(world.kubernetes.create(administrator_secret(owner, world.password(), authority)))
            else:
                world.write_secret(secret, binding(owner, ADMINISTRATOR, password_in(secret), authority))
        except NotYet as reason:
            return reason.reason, str(reason)
        return None

    def _apply_children(self, manifest: Manifest, owner: Owner) -> tuple[tuple[str, ...], tuple[str, str] | None]:
        """Apply the children; return the kinds that this Kubernetes lacks, and its refusal."""
        missing: list[str] = []
        for wanted in children(owner):
            try:
                self._apply(manifest, wanted)
            except ApiError as error:
                if error.code == 404 and (wanted["apiVersion"], wanted["kind"]) in OPTIONAL:
                    missing.append(wanted["kind"])
                elif error.code in {400, 403, 409, 422}:
                    return tuple(missing), ("ApplyRefused", f"{wanted['kind']} '{wanted['metadata']['name']}': {error}")
                else:
                    raise
        return tuple(missing), None

    def _apply(self, manifest: Manifest, wanted: Manifest) -> None:
        metadata = wanted["metadata"]
        kubernetes = self._world.kubernetes
        there = kubernetes.read(wanted["apiVersion"], wanted["kind"], metadata["namespace"], metadata["name"])
        if there is None:
            kubernetes.apply(wanted)
            return
        if there["metadata"].get("labels", {}).get(CLUSTER_LABEL) != metadata["labels"][CLUSTER_LABEL]:
            raise ApiError(409, "there is one already that is not this Cluster's; delete it, or rename the Cluster")
        differing = differences(wanted, there)
        if not differing:
            return
        kubernetes.apply(wanted)
        generation = manifest["metadata"].get("generation")
        if manifest.get("status", {}).get("observedGeneration") == generation:
            message = f"{wanted['kind']} {metadata['name']} differed and was put right: {', '.join(differing[:5])}"
            kubernetes.tell(manifest, is_warning=True, reason="DriftRepaired", message=message)

    def _remove_unwanted(self, owner: Owner) -> None:
        kinds = {each["kind"] for each in children(owner)}
        for api_version, kind in OPTIONAL:
            if kind not in kinds:
                there = self._seen(api_version, kind, owner)
                if there is not None and there["metadata"].get("labels", {}).get(CLUSTER_LABEL) == owner.name:
                    self._world.kubernetes.delete({"apiVersion": api_version, "kind": kind, **there})

    def _seen(self, api_version: str, kind: str, owner: Owner) -> Manifest | None:
        """Return a child; a kind that an older chart grants no access to was never made by this operator."""
        try:
            return self._world.kubernetes.read(api_version, kind, owner.namespace, owner.name)
        except ApiError as error:
            if error.code == FORBIDDEN:
                return None
            raise

    def _roll(self, manifest: Manifest, owner: Owner) -> Manifest | None:
        """Replace a pod of an old revision, once. One that is terminating is left alone."""
        kubernetes = self._world.kubernetes
        pod = kubernetes.read("v1", "Pod", owner.namespace, owner.pod)
        workload = kubernetes.read("apps/v1", "StatefulSet", owner.namespace, owner.name)
        if pod is None or workload is None or "deletionTimestamp" in pod["metadata"]:
            return pod
        found = workload.get("status", {})
        is_observed = found.get("observedGeneration") == workload["metadata"].get("generation")
        revision = pod["metadata"].get("labels", {}).get("controller-revision-hash")
        if is_observed and found.get("updateRevision") and revision != found["updateRevision"]:
            message = f"replacing {owner.pod}: its configuration, image or resources changed"
            kubernetes.tell(manifest, is_warning=False, reason="RollingPod", message=message)
            kubernetes.delete({**pod, "apiVersion": "v1", "kind": "Pod"})
            return kubernetes.read("v1", "Pod", owner.namespace, owner.pod)
        return pod

    # ------------------------------------------------------------ observing

    def _look(
        self,
        owner: Owner,
        pod: Manifest | None,
        *,
        growth: tuple[str, str] | None,
        missing: tuple[str, ...],
        blocked: tuple[str, str] | None,
    ) -> Facts:
        claim = self._world.kubernetes.read("v1", "PersistentVolumeClaim", owner.namespace, owner.claim)
        broker, problem, tls = None, None, None
        if pod is not None and is_pod_ready(pod) and blocked is None:
            broker, problem = self._ask(owner)
            tls = self._ask_certificate(owner)
        return Facts(pod, claim, broker, problem, blocked, growth, missing, tls)

    def _ask_certificate(self, owner: Owner) -> Says | None:
        """Check the certificate that the broker serves, not the one in the Secret."""
        if owner.spec.tls is None:
            return None
        try:
            tls = enter(self._world, owner).tls
            assert tls is not None
            until = self._world.good_until(owner.host, GRPC_PORT, tls)
        except UntrustedError as error:
            return Says("TLSValid", "False", "Untrusted", f"{error}; renew the Secret '{owner.spec.tls.secret_name}'")
        except (OSError, NotYet) as error:
            return Says("TLSValid", "Unknown", "NotSeen", str(error))
        return Says("TLSValid", "True", "Valid", f"until {until}")

    def _ask(self, owner: Owner) -> tuple[BrokerFacts | None, tuple[str, str] | None]:
        try:
            found = self._world.brokers.get(enter(self._world, owner).address()).admin.status()
        except NotYet as reason:
            return None, (reason.reason, str(reason))
        except NotAuthenticatedError as error:
            message = f"the Secret '{owner.secret}' does not open this broker; put the password back that it began with"
            return None, ("CredentialsRejected", f"{message}: {error}")
        except (BrokerUnreachableError, *UNREACHABLE) as error:
            self._world.brokers.forget(owner.host)
            return None, ("BrokerUnreachable", str(error))
        except RefusedError as error:
            return None, ("BrokerRefused", str(error))
        corruption = tuple(f"{each.file} in vhost '{each.vhost}': {each.records} records" for each in found.corruption)
        return BrokerFacts(found.version, corruption, found.data_id), None

    def _tell_news(self, key: Key, manifest: Manifest, says: list[Says]) -> None:
        """Report changes: to users by events, to topology objects by a reconcile."""
        before = manifest.get("status", {}).get("conditions", [])
        for each in says:
            if status_of(before, each.type) == each.status or (not before and each.status == "True"):
                continue
            is_bad = each.type == "DataLost" or (each.status == "False" and each.reason not in {"Starting", "Stopped"})
            text = each.message or each.reason
            self._world.kubernetes.tell(manifest, is_warning=is_bad, reason=each.reason, message=text)
        is_ready = any(each.type == "Ready" and each.status == "True" for each in says)
        is_empty = any(each.type == "DataLost" for each in says) and status_of(before, "DataLost") != "True"
        if (is_ready and status_of(before, "Ready") != "True") or is_empty:
            self._wake_topology(key)

    def _wake_topology(self, key: Key) -> None:
        for other in self._world.store.of_cluster((key.namespace, key.name)):
            self._world.add(other, 0.0)

    def _pause(self, manifest: Manifest) -> None:
        before = manifest.get("status", {}).get("conditions", [])
        kept = [
            Says(each["type"], each["status"], each["reason"], each.get("message", ""))
            for each in before
            if each["type"] != "Paused"
        ]
        paused = Says("Paused", "True", "Paused", "set spec.paused to false to go on")
        self._write(manifest, {"phase": "Paused"}, [*kept, paused])

    def _write(self, manifest: Manifest, found: Manifest, says: list[Says]) -> None:
        generation = manifest["metadata"].get("generation", 0)
        before = manifest.get("status", {}).get("conditions", [])
        conditions = merged(before, says, generation, self._world.now())
        self._world.write_status(manifest, {"observedGeneration": generation, "conditions": conditions, **found})

    # ------------------------------------------------------------ deletion

    def _finalize(self, key: Key, manifest: Manifest) -> float | None:
        """Let the Cluster go once the fate of its volume is sure. What else it owns goes by itself."""
        finalizers = manifest["metadata"].get("finalizers", [])
        if FINALIZER not in finalizers:
            return None
        waits = decide_fate(self._world, manifest)
        if waits:
            self._write(manifest, {"phase": "Terminating"}, [Says("Ready", "False", "WaitingForVolume", waits)])
            return SOON_SECONDS
        self._world.brokers.forget(f"{key.name}.{key.namespace}.svc")
        self._world.write_finalizers(manifest, [each for each in finalizers if each != FINALIZER])
        self._wake_topology(key)
        return None
