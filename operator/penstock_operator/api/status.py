"""The status of all kinds: Kubernetes conditions, and observed state. Only the operator writes it."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.fields import Model


class Condition(Model):
    """One statement about an object, since when it holds, and why."""

    type: Annotated[str, Field(max_length=316)]
    status: Literal["True", "False", "Unknown"]
    reason: Annotated[str, Field(max_length=1024)]
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
    """What the operator found on the broker."""

    observed_generation: int | None = Field(None, ge=0)
    conditions: Conditions = Field(default_factory=list)
    broker_name: str | None = Field(None, description="What it is called on the broker.")
    last_sync_time: str | None = Field(
        None, description="When the broker was last changed for it.", json_schema_extra={"format": "date-time"}
    )
    drift: Annotated[list[str], Field(max_length=32)] | None = Field(
        None, description="What differs on the broker and is not repaired."
    )
    binding: NamedRef | None = Field(None, description="The Secret to log in with.")


class Endpoints(Model):
    """Where the broker answers, inside of Kubernetes."""

    grpc: str
    metrics: str


class BrokerStatus(Model):
    """What the broker says of itself. Figures that move all the time are in /metrics, not here."""

    pod: str
    node: str | None = None
    storage_id: str | None = None


class ClusterStatus(Model):
    """What the operator found."""

    model_config = ConfigDict(title="ClusterStatus")

    observed_generation: int | None = Field(None, ge=0)
    phase: str | None = Field(None, description="Running, Starting, Stopped, Paused or Failed.")
    conditions: Conditions = Field(default_factory=list)
    replicas: int | None = None
    ready_replicas: int | None = None
    selector: str | None = None
    current_version: str | None = None
    storage_id: str | None = Field(None, description="The volume that the messages are on.")
    data_id: str | None = Field(None, description="The data directory on it, as the broker tells.")
    binding: NamedRef | None = Field(None, description="The Secret of the first administrator.")
    endpoints: Endpoints | None = None
    brokers: Annotated[list[BrokerStatus], Field(max_length=99)] | None = None
