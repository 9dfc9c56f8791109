"""The table of kinds: names, spec models and the columns of `kubectl get`."""

from dataclasses import dataclass, field
from typing import Final

from penstock_operator.api.backup import BackupSpec, ScheduledBackupSpec
from penstock_operator.api.cluster import ClusterSpec
from penstock_operator.api.fields import Model
from penstock_operator.api.status import BackupStatus, ClusterStatus, ScheduledBackupStatus, TopologyStatus
from penstock_operator.api.topology import (
    BindingSpec,
    ExchangeSpec,
    PermissionSpec,
    PolicySpec,
    QueueSpec,
    StreamSpec,
    TopicPermissionSpec,
    UserSpec,
    VHostSpec,
)

GROUP: Final = "penstock.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`. Those of priority 1 are shown with `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0

    def manifest(self) -> dict[str, object]:
        found: dict[str, object] = {"name": self.name, "type": self.type, "jsonPath": self.path}
        return found | {"priority": self.priority} if self.priority else found


def _condition(name: str, part: str = "status") -> str:
    return f'.status.conditions[?(@.type=="{name}")].{part}'


READY = Column("Ready", _condition("Ready"))
REASON = Column("Reason", _condition("Ready", "reason"))
MESSAGE = Column("Message", _condition("Ready", "message"), priority=1)
AGE = Column("Age", ".metadata.creationTimestamp", "date")
CLUSTER = Column("Cluster", ".spec.clusterRef.name")
CONNECTION = Column("Connection", ".spec.connectionSecretRef.name", priority=1)
VHOST = Column("VHost", ".spec.vhost")


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of penstock.dev."""

    name: str
    plural: str
    short: str
    spec: type[Model]
    says: str
    columns: tuple[Column, ...] = field(default=())
    has_scale: bool = False
    status: type[Model] = TopologyStatus

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{GROUP}"

    @property
    def is_topology(self) -> bool:
        """Return whether its objects describe things in a broker."""
        return self.status is TopologyStatus

    @property
    def has_cluster(self) -> bool:
        """Return whether its objects name their Cluster."""
        return self.name != "Cluster"


def _topology(name: str, plural: str, short: str, spec: type[Model], *columns: Column) -> Kind:
    says = f"{(spec.__doc__ or '').splitlines()[0]}"
    return Kind(name, plural, short, spec, says, (CLUSTER, *columns, READY, REASON, CONNECTION, MESSAGE, AGE))


_CLUSTER_COLUMNS = (
    Column("Replicas", ".spec.replicas", "integer"),
    READY,
    Column("Status", ".status.phase"),
    REASON,
    Column("Version", ".status.currentVersion"),
    MESSAGE,
    AGE,
)
_BACKUP_COLUMNS = (
    CLUSTER,
    Column("Status", ".status.phase"),
    Column("Size", ".status.bytes", "integer"),
    Column("Completed", ".status.completedAt", "date"),
    REASON,
    MESSAGE,
    AGE,
)
_SCHEDULE_COLUMNS = (
    CLUSTER,
    Column("Schedule", ".spec.schedule"),
    Column("Suspended", ".spec.suspend", "boolean"),
    Column("Last", ".status.lastScheduleTime", "date"),
    Column("Next", ".status.nextScheduleTime"),
    READY,
    REASON,
    MESSAGE,
    AGE,
)
KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind("Cluster", "clusters", "psc", ClusterSpec, "A broker.", _CLUSTER_COLUMNS, True, ClusterStatus),
        Kind("Backup", "backups", "psbak", BackupSpec, "A backup.", _BACKUP_COLUMNS, status=BackupStatus),
        Kind(
            "ScheduledBackup",
            "scheduledbackups",
            "psbaks",
            ScheduledBackupSpec,
            "Backups by a schedule.",
            _SCHEDULE_COLUMNS,
            status=ScheduledBackupStatus,
        ),
        _topology("VHost", "vhosts", "psv", VHostSpec, Column("Name", ".spec.name")),
        _topology(
            "Queue",
            "queues",
            "psq",
            QueueSpec,
            VHOST,
            Column("Name", ".spec.name"),
            Column("Type", ".spec.type", priority=1),
        ),
        _topology(
            "Stream",
            "streams",
            "psst",
            StreamSpec,
            VHOST,
            Column("Name", ".spec.name"),
            Column("Partitions", ".spec.partitions", "integer", priority=1),
        ),
        _topology(
            "Exchange",
            "exchanges",
            "psx",
            ExchangeSpec,
            VHOST,
            Column("Name", ".spec.name"),
            Column("Type", ".spec.type"),
        ),
        _topology(
            "Binding",
            "bindings",
            "psb",
            BindingSpec,
            VHOST,
            Column("Source", ".spec.source"),
            Column("Destination", ".spec.destination"),
            Column("Key", ".spec.routingKey", priority=1),
        ),
        _topology("Policy", "policies", "psp", PolicySpec, VHOST, Column("Name", ".spec.name")),
        _topology(
            "User", "users", "psu", UserSpec, Column("Name", ".spec.name"), Column("Secret", ".status.binding.name")
        ),
        _topology("Permission", "permissions", "psperm", PermissionSpec, VHOST, Column("User", ".status.brokerName")),
        _topology(
            "TopicPermission",
            "topicpermissions",
            "pstopic",
            TopicPermissionSpec,
            VHOST,
            Column("User", ".status.brokerName"),
            Column("Exchange", ".spec.exchange"),
        ),
    )
}
