"""Names, labels and ports of a Cluster's objects. Other modules never spell one themselves."""

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from penstock_operator.api import ClusterSpec
from penstock_operator.api.kinds import API_VERSION

GRPC_PORT: Final = 5680
METRICS_PORT: Final = 15692
AMQP_PORT: Final = 5672
AMQPS_PORT: Final = 5671
CLUSTER_LABEL: Final = "penstock.dev/cluster"
FIELD_MANAGER: Final = "penstock-operator"
FINALIZER: Final = "penstock.dev/cleanup"
PAUSED_ANNOTATION: Final = "penstock.dev/paused"
RELEASE_ANNOTATION: Final = "penstock.dev/release"
LOSS_SEEN_ANNOTATION: Final = "penstock.dev/data-loss-seen"
REVISION_ANNOTATION: Final = "penstock.dev/revision"
ROTATE_ANNOTATION: Final = "penstock.dev/rotate-password"
# On the pods of backups: the Cluster whose broker they may reach.
BACKUP_OF_LABEL: Final = "penstock.dev/backup-of"
# On a Backup: the ScheduledBackup that made it, by name and by uid, and the time that was due.
SCHEDULE_LABEL: Final = "penstock.dev/scheduled-backup"
SCHEDULE_ANNOTATION: Final = "penstock.dev/scheduled-backup-uid"
DUE_ANNOTATION: Final = "penstock.dev/due"
CONFIG_HASH_ANNOTATION: Final = "penstock.dev/config-hash"
ADMINISTRATOR: Final = "admin"
VOLUME: Final = "data"
# The init container that restores a backup.
RESTORE: Final = "restore"
BROKER_UID: Final = 10_001


def secret_name(cluster: str) -> str:
    """Return the name of the Secret of a Cluster's administrator."""
    return f"{cluster}-default-user"


def cluster_reference(metadata: dict[str, Any], *, is_controller: bool) -> dict[str, Any]:
    """Return an owner reference; not blocking, as deleting the Cluster must not require more permissions."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": is_controller,
        "blockOwnerDeletion": False,
    }


def is_owned_by(manifest: dict[str, Any], uid: str) -> bool:
    return any(each.get("uid") == uid for each in manifest["metadata"].get("ownerReferences") or [])


class Endpoint(NamedTuple):
    """Where clients reach a broker."""

    host: str
    port: int = GRPC_PORT
    has_tls: bool = False

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Owner:
    """A Cluster as the owner of its children, with its spec."""

    name: str
    namespace: str
    uid: str
    spec: ClusterSpec
    # Namespace of the operator's pod, which network policies admit; empty when it runs outside of Kubernetes.
    operator_namespace: str = ""

    @property
    def headless(self) -> str:
        return f"{self.name}-nodes"

    @property
    def config_map(self) -> str:
        return f"{self.name}-config"

    @property
    def secret(self) -> str:
        return secret_name(self.name)

    def pod(self, ordinal: int) -> str:
        return f"{self.name}-{ordinal}"

    def claim(self, ordinal: int) -> str:
        return f"{VOLUME}-{self.pod(ordinal)}"

    @property
    def ordinals(self) -> range:
        """Return the brokers that may have a volume: a Cluster that is stopped keeps its first one's."""
        return range(max(1, self.spec.replicas))

    @property
    def host(self) -> str:
        """Return the address for clients in any namespace."""
        return f"{self.name}.{self.namespace}.svc"

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.host, GRPC_PORT, self.spec.tls is not None)

    @property
    def amqp_port(self) -> tuple[str, int] | None:
        """Return the name and the number of the port of AMQP, which depend on TLS; None when it is off."""
        if not self.spec.service.amqp:
            return None
        return ("amqps", AMQPS_PORT) if self.spec.tls is not None else ("amqp", AMQP_PORT)

    @property
    def selector(self) -> dict[str, str]:
        return {"app.kubernetes.io/name": "penstock", "app.kubernetes.io/instance": self.name}

    @property
    def labels(self) -> dict[str, str]:
        return {**self.selector, "app.kubernetes.io/managed-by": FIELD_MANAGER, CLUSTER_LABEL: self.name}

    def reference(self) -> dict[str, Any]:
        return cluster_reference({"name": self.name, "uid": self.uid}, is_controller=True)

    def metadata(self, name: str, *, is_owned: bool = True, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"name": name, "namespace": self.namespace, "labels": self.labels}
        if is_owned:
            found["ownerReferences"] = [self.reference()]
        return found | more
