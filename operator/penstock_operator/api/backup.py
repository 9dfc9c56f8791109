"""The kinds Backup and ScheduledBackup, and the place where a backup is stored.

A backup is one file, on a volume or in a bucket. Everything but the fate of the file is fixed when a Backup is made, as
a finished one is never run again.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock_operator.api.fields import (
    Model,
    ObjectName,
    Quantity,
    SecretName,
    immutable,
    part,
    rule,
    rules,
)

# Names of files below a folder: no '..', nothing hidden, no absolute path. Empty, or with '/' at the end: a folder.
FILE_PATTERN: Final = r"^([A-Za-z0-9_=][-A-Za-z0-9._=]*/)*([A-Za-z0-9_=][-A-Za-z0-9._=]*)?$"
File = Annotated[str, Field(max_length=512, pattern=FILE_PATTERN)]
Deadline = Annotated[int, Field(ge=60, le=604_800)]
DEADLINE_SECONDS: Final = 3_600
Age = Annotated[str, Field(max_length=8, pattern="^[1-9][0-9]{0,5}[mhd]$")]
Schedule = Annotated[str, Field(max_length=128, pattern=r"^[-0-9A-Za-z*,/#]+( [-0-9A-Za-z*,/#]+){4}$")]
FOLDER: Final = "Empty, or with a '/' at its end, it is a folder, and the file is called after the Backup: NAME.backup."


class VolumeTarget(Model):
    """A volume in the same namespace."""

    claim_name: ObjectName = Field(description="A PersistentVolumeClaim in the same namespace.")
    path: File = Field("", description=f"The file on the volume. {FOLDER}")


class S3Target(Model):
    """A bucket of S3, or of a store that speaks its protocol."""

    bucket: Annotated[str, Field(min_length=3, max_length=63, pattern=r"^[a-z0-9][-a-z0-9.]*[a-z0-9]$")]
    key: File = Field("", description=f"The key of the object. {FOLDER}")
    endpoint: Annotated[str, Field(max_length=512, pattern=r"^https?://[^\s/]+/?$")] | None = Field(
        None, description="Address of the store: https://HOST:PORT, or http:// for a store without TLS. Default: AWS."
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[-A-Za-z0-9]+$")] = "us-east-1"
    credentials_secret: SecretName = Field(
        description="A Secret in the same namespace with the keys AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
    )


_ONE_TARGET = rule("has(self.volume) != has(self.s3)", "a target is either volume or s3; write one of them")


class Target(Model):
    """The place of a backup."""

    model_config = ConfigDict(json_schema_extra=rules(_ONE_TARGET))

    volume: VolumeTarget | None = Field(None, description="A volume.")
    s3: S3Target | None = Field(None, description="A bucket.")

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.volume is None) == (self.s3 is None):
            raise ValueError(_ONE_TARGET["message"])
        return self

    @property
    def file(self) -> str:
        """Return the path or key as it is written."""
        if self.volume is not None:
            return self.volume.path
        assert self.s3 is not None
        return self.s3.key

    def of(self, name: str) -> "Target":
        """Return the target of the Backup of this name: a file, where this one may be a folder."""
        if self.file and not self.file.endswith("/"):
            return self
        file = f"{self.file}{name}.backup"
        if self.volume is not None:
            return Target(volume=self.volume.model_copy(update={"path": file}))
        assert self.s3 is not None
        return Target(s3=self.s3.model_copy(update={"key": file}))

    def __str__(self) -> str:
        if self.volume is not None:
            return f"volume {self.volume.claim_name}: {self.volume.path}"
        assert self.s3 is not None
        return f"s3://{self.s3.bucket}/{self.s3.key}"


class FolderTarget(Target):
    """The folder of the backups."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            _ONE_TARGET,
            rule(
                "(!has(self.volume) || self.volume.path.matches('(^|/)$'))"
                " && (!has(self.s3) || self.s3.key.matches('(^|/)$'))",
                "each backup is a file of its own; write a folder, with '/' at its end, or nothing",
            ),
        )
    )


class FileTarget(Target):
    """The file of a backup."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            _ONE_TARGET,
            rule(
                "(!has(self.volume) || self.volume.path.matches('[^/]$'))"
                " && (!has(self.s3) || self.s3.key.matches('[^/]$'))",
                "a restore reads one file; write its whole path, which status.target of the Backup shows",
            ),
        )
    )


class JobResources(Model):
    """Resources of the Job's container."""

    requests: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"cpu": "100m", "memory": "128Mi"})
    limits: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"memory": "512Mi"})


class LocalClusterRef(Model):
    """The Cluster of a backup. A backup has all messages, so it is made in the Cluster's own namespace only."""

    name: ObjectName


_DELETION: Final = "Whether deleting the Backup deletes its file. Only the file of a completed one is deleted."
_DEADLINE: Final = "Seconds that the Job may take; then it fails."


class BackupSpec(Model):
    """A backup of a Cluster. It is made once."""

    cluster_ref: LocalClusterRef = immutable("clusterRef", description="The Cluster, in the same namespace.")
    target: Target = immutable("target", extra_rules=[_ONE_TARGET], description="The place of the file.")
    deletion_policy: Literal["Retain", "Delete"] = Field("Retain", description=_DELETION)
    deadline_seconds: Deadline = immutable("deadlineSeconds", default=DEADLINE_SECONDS, description=_DEADLINE)
    resources: JobResources = part(JobResources)


class BackupTemplate(Model):
    """The Backups that a ScheduledBackup makes. A change counts from the next one on."""

    target: FolderTarget = Field(description="The folder of the files.")
    deletion_policy: Literal["Retain", "Delete"] = Field("Retain", description=_DELETION)
    deadline_seconds: Deadline = Field(DEADLINE_SECONDS, description=_DEADLINE)
    resources: JobResources = part(JobResources)


class Retention(Model):
    """The Backups that stay. The newest completed one and failed ones always do."""

    count: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="Number of completed Backups that stay. All when absent."
    )
    age: Age | None = Field(
        None, description="Completed Backups that are older are deleted: a number and m, h or d. Absent: none is."
    )


class ScheduledBackupSpec(Model):
    """Backups of a Cluster by a schedule."""

    cluster_ref: LocalClusterRef = immutable("clusterRef", description="The Cluster, in the same namespace.")
    schedule: Schedule = Field(description="Five fields of cron: minute, hour, day, month, weekday.")
    time_zone: Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z][-+A-Za-z0-9_/]*$")] = Field(
        "UTC", description="Time zone of the schedule, such as Europe/Oslo."
    )
    suspend: bool = Field(False, description="Make no Backups. Times that pass meanwhile are left out.")
    immediate: bool = Field(False, description="Make the first Backup at once.")
    template: BackupTemplate = Field(description="The Backups to make.")
    retention: Retention = part(Retention)


class RestoreFrom(Model):
    """The backup that a new Cluster begins with."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "has(self.backupName) != has(self.target)",
                "a Cluster is restored from one backup; write either backupName or target",
            )
        )
    )

    backup_name: ObjectName | None = Field(None, description="A completed Backup in the same namespace.")
    target: FileTarget | None = Field(None, description="The file of a backup.")

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        if (self.backup_name is None) == (self.target is None):
            raise ValueError("a Cluster is restored from one backup; write either backupName or target")
        return self
