"""The status of all kinds: conditions as Kubernetes defines them, and the observed state. The operator writes it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.fields import Model


class Condition(Model):
    """One statement about an object, since when it holds, and why."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=1024, description="docs/failures.md has a section of this name.")]
    message: Annotated[str, Field(max_length=32_768)] = ""
    last_transition_time: str = Field(json_schema_extra={"format": "date-time"})
    observed_generation: int | None = Field(None, ge=0)


Conditions = Annotated[
    list[Condition],
    Field(
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    ),
]


class NamedRef(Model):
    """A Secret that follows the Service Binding convention."""

    name: Annotated[str, Field(max_length=253)]


class TopologyStatus(Model):
    """The observed state of an object on the broker."""

    observed_generation: int | None = Field(None, ge=0)
    conditions: Conditions = Field(default_factory=list)
    broker_name: str | None = Field(None, description="Its name on the broker.")
    last_sync_time: str | None = Field(
        None,
        description="Time of the last change on the broker for this object.",
        json_schema_extra={"format": "date-time"},
    )
    drift: Annotated[list[str], Field(max_length=32)] | None = Field(
        None, description="Fields that differ on the broker and are not corrected."
    )
    binding: NamedRef | None = Field(None, description="The Secret to log in with.")


Time = Annotated[str, Field(json_schema_extra={"format": "date-time"})]


class BackupStatus(Model):
    """The state of a Backup."""

    observed_generation: int | None = Field(None, ge=0)
    conditions: Conditions = Field(default_factory=list)
    phase: str | None = Field(None, description="Pending, Running, Completed or Failed.")
    target: str | None = Field(None, description="The file: s3://BUCKET/KEY, or the path on the volume of CLAIM.")
    job: str | None = Field(None, description="The Job that makes it.")
    image: str | None = Field(None, description="The broker's image that the Job runs.")
    started_at: Time | None = None
    completed_at: Time | None = None
    bytes: int | None = Field(None, ge=0, description="Size of the file.")
    sha256: str | None = Field(None, description="Digest of the file.")
    vhosts: int | None = Field(None, ge=0, description="Number of virtual hosts in it.")
    data_id: str | None = Field(None, description="The id of the data directory that it is of.")
    broker_version: str | None = None


class ScheduledBackupStatus(Model):
    """The state of a schedule."""

    observed_generation: int | None = Field(None, ge=0)
    conditions: Conditions = Field(default_factory=list)
    last_schedule_time: Time | None = Field(None, description="The last time that was due.")
    next_schedule_time: Time | None = Field(None, description="The next time that is due.")
    due_since: Time | None = Field(
        None, description="The first time that was due since the newest completed Backup. Absent: none was."
    )
    last_backup_name: str | None = Field(None, description="The Backup that was made last.")
    last_completed_name: str | None = Field(None, description="The newest Backup that completed.")


class Endpoints(Model):
    """Addresses of the broker inside Kubernetes."""

    grpc: str
    amqp: str | None = None
    metrics: str


class BrokerStatus(Model):
    """The broker's own state. /metrics has the values that change all the time."""

    pod: Annotated[str, Field(max_length=253)]
    ready: bool | None = Field(None, description="Whether the pod is ready.")
    node: str | None = None
    revision: str | None = Field(None, description="The StatefulSet's revision that the pod runs.")
    storage_id: str | None = Field(None, description="The volume with the messages.")
    storage_size: str | None = Field(None, description="The size of that volume.")
    data_id: str | None = Field(None, description="The id of the data directory on it.")


class RestoreStatus(Model):
    """The backup that a Cluster began with."""

    source: str = Field(description="The file that spec.restoreFrom names.")
    restored: bool = Field(description="Whether it was restored; false: the volume had data already, and kept it.")
    at: Time


class ImageRevision(Model):
    """The form in which the objects of an image are written."""

    image: Annotated[str, Field(max_length=512)]
    revision: Annotated[int, Field(ge=1)]


class ClusterStatus(Model):
    """The observed state of a Cluster."""

    model_config = ConfigDict(title="ClusterStatus")

    observed_generation: int | None = Field(None, ge=0)
    phase: str | None = Field(None, description="Running, Starting, Stopped, Paused, Failed or Terminating.")
    conditions: Conditions = Field(default_factory=list)
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str | None = None
    current_version: str | None = None
    storage_id: str | None = Field(None, description="The volume of the first broker; brokers has all.")
    data_id: str | None = Field(None, description="The data directory of the first broker; brokers has all.")
    storage_size: Annotated[str, Field(max_length=32)] | None = Field(
        None, description="Size of the volumes. A size that was refused can be put back to it."
    )
    restore: RestoreStatus | None = Field(None, description="The backup that it began with.")
    binding: NamedRef | None = Field(None, description="The Secret of the first administrator.")
    endpoints: Endpoints | None = None
    brokers: Annotated[list[BrokerStatus], Field(max_length=99)] | None = None
    revisions: Annotated[list[ImageRevision], Field(max_length=10)] | None = Field(
        None, description="The revision of the objects that the operator writes for each image, the current one last."
    )
