"""The kinds of penstock.dev: pydantic models, from which the CRDs and their documentation are generated."""

from penstock_operator.api.backup import BackupSpec, RestoreFrom, ScheduledBackupSpec, Target
from penstock_operator.api.cluster import ClusterSpec
from penstock_operator.api.kinds import GROUP, KINDS, VERSION, Kind
from penstock_operator.api.topology import (
    BindingSpec,
    ExchangeSpec,
    GrantSpec,
    Limits,
    PermissionSpec,
    PolicySpec,
    QueueSpec,
    RetainedSpec,
    StreamSpec,
    TopicPermissionSpec,
    TopologySpec,
    UserSpec,
    VHostSpec,
)

__all__ = [
    "GROUP",
    "KINDS",
    "VERSION",
    "BackupSpec",
    "BindingSpec",
    "ClusterSpec",
    "ExchangeSpec",
    "GrantSpec",
    "Kind",
    "Limits",
    "PermissionSpec",
    "PolicySpec",
    "QueueSpec",
    "RestoreFrom",
    "RetainedSpec",
    "ScheduledBackupSpec",
    "StreamSpec",
    "Target",
    "TopicPermissionSpec",
    "TopologySpec",
    "UserSpec",
    "VHostSpec",
]
