"""The record of a shard that a coordinator stores: who leads it, and which replicas have all that is committed.

It is read from outside, so it is checked: a record that contradicts itself is refused, never corrected.
"""

from typing import Annotated, Any, Final, NewType, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from penstock.model.errors import StorageError, Thing

ReplicaId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
"""The identity of a replica's disk: 128 bits in hexadecimal digits."""
BrokerName = NewType("BrokerName", str)
Broker = Annotated[str, Field(min_length=1, max_length=253)]
Number = Annotated[int, Field(ge=0, lt=2**64)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Leader(_Strict):
    """The process that leads; another boot of the same broker is another leader."""

    broker: Broker
    replica: ReplicaId
    boot: Number


RECOVERIES_MAX: Final = 8
"""Older recoveries of a shard are forgotten."""


class Recovery(_Strict):
    """An operator's choice that a replica leads which may lack confirmed messages, as none in sync was left."""

    epoch: Number
    """The record's epoch by it. Logs whose newest record is of a lower one may have more than the chosen replica's."""
    broker: Broker
    replica: ReplicaId
    end: Number
    """Where its log ended."""
    by: str = Field(max_length=255)
    """The user who asked for it."""
    at_ms: Annotated[int, Field(ge=0, lt=2**53)]
    """When it was, since 1970, by the clock of the broker that was asked."""
    lost: tuple[ReplicaId, ...] = Field(max_length=64)
    """The replicas that were in sync before. One that comes back begins anew, and its log is set aside."""


class ShardRecord(_Strict):
    """The leader and the replicas of a shard. Each change has another version, which alone says whether it changed."""

    epoch: Number
    leader: Leader
    in_sync: tuple[ReplicaId, ...] = Field(min_length=1, max_length=64)
    """Replicas that have every committed record on their disks, ascending."""
    replicas: dict[ReplicaId, Broker] = Field(max_length=64)
    """All replicas with their brokers; those that are not in sync are learners."""
    min_in_sync: int = Field(ge=1, le=64)
    """The in-sync set never shrinks below this number."""
    recoveries: tuple[Recovery, ...] = Field(default=(), max_length=RECOVERIES_MAX)
    """The last ones, oldest first."""

    def stored(self) -> dict[str, Any]:
        """Return the values that JSON has. A record without recoveries is as earlier versions know it."""
        return self.model_dump(mode="json", exclude=None if self.recoveries else {"recoveries"})

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if list(self.in_sync) != sorted(set(self.in_sync)):
            raise ValueError("in_sync must be ascending, without doubles")
        if not set(self.in_sync) <= self.replicas.keys():
            raise ValueError("in_sync must be among the replicas")
        if len(self.in_sync) < self.min_in_sync:
            raise ValueError("in_sync must not be smaller than min_in_sync")
        return self


def parse_record(text: str | bytes, where: Thing) -> ShardRecord:
    """Return the record of a JSON text. Raises StorageError that names where it came from."""
    try:
        return ShardRecord.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the record"
        raise StorageError(where, f"is not a shard's record: {place}: {first['msg']}", "restore a copy") from error
