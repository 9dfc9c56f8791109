"""Names and texts of the coordinator as the numbers that the native module has for them, and back.

A broker's number and a shard's id follow from their names, so that nothing has to hand them out. Two names with the
same number are as likely as two equal digests of 64 bits.
"""

import hashlib
from typing import Final

from penstock.cluster.coordinator import Version
from penstock.cluster.record import BrokerName, Leader, Recovery, ShardRecord
from penstock.model.errors import StorageError, Thing
from penstock.native import ReplicaHolder, ShardState

VERSIONS_MAX: Final = 4_096
"""Versions that are remembered: a replica changes the record that it read last."""


def broker_number(name: str) -> int:
    """Return the number of a broker; no broker has 0."""
    return _number(f"broker {name}") or 1


def shard_id(cluster: bytes, shard: str) -> bytes:
    """Return the id of a shard, which the logs of all its replicas have."""
    return hashlib.sha256(cluster + shard.encode()).digest()[:16]


class Translation:
    """Invariant: the brokers of each record that was translated are known by name."""

    def __init__(self) -> None:
        self._brokers: dict[int, BrokerName] = {}
        self._versions: dict[int, tuple[Version, tuple[Recovery, ...]]] = {}

    def number_of(self, broker: str) -> int:
        """Return a broker's number, and remember its name."""
        number = broker_number(broker)
        self._brokers[number] = BrokerName(broker)
        return number

    def name_of(self, number: int) -> BrokerName:
        """Return a broker's name. Raises StorageError for one that no record had."""
        found = self.known_name(number)
        if found is None:
            raise StorageError(Thing("broker", str(number)), "is in no record", "check the brokers of the cluster")
        return found

    def known_name(self, number: int) -> BrokerName | None:
        """Return a broker's name; None for one that no record had."""
        return self._brokers.get(number)

    def version_number(self, version: Version, recoveries: tuple[Recovery, ...] = ()) -> int:
        """Return the number of a record's version, and remember its text with the recoveries of the record."""
        number = _number(f"version {version}")
        self._versions.pop(number, None)
        self._versions[number] = (version, recoveries)
        if len(self._versions) > VERSIONS_MAX:
            del self._versions[next(iter(self._versions))]
        return number

    def version_of(self, number: int) -> Version | None:
        """Return the text of a version that was translated lately."""
        found = self._versions.get(number)
        return None if found is None else found[0]

    def state_of(self, record: ShardRecord) -> ShardState:
        return ShardState(
            epoch=record.epoch,
            leader=self.number_of(record.leader.broker),
            leader_replica=record.leader.replica,
            leader_boot=record.leader.boot,
            in_sync=record.in_sync,
            replicas=[
                ReplicaHolder(replica=replica, broker=self.number_of(broker))
                for replica, broker in record.replicas.items()
            ],
            min_in_sync=record.min_in_sync,
        )

    def record_of(self, state: ShardState, base: int = 0) -> ShardRecord:
        """Return the record of a state, which is to replace the one with the version of a number.

        It keeps the recoveries of that one. Raises StorageError for a broker that no record had.
        """
        _, recoveries = self._versions.get(base, ("", ()))
        return ShardRecord(
            epoch=state.epoch,
            leader=Leader(broker=self.name_of(state.leader), replica=state.leader_replica, boot=state.leader_boot),
            in_sync=tuple(sorted(state.in_sync)),
            replicas={holder.replica: self.name_of(holder.broker) for holder in state.replicas},
            min_in_sync=state.min_in_sync,
            recoveries=recoveries,
        )


def _number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
