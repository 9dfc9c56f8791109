"""The recovery of a virtual host by `penstock cluster recover`: of each shard by itself, as far as it needs one."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock import Connection
    from penstock.client.cluster_records import RecoveredShard

__all__ = ["outcome_of", "recover_shards"]


def recover_shards(connection: "Connection", vhost: str, broker: str, accept_loss: bool) -> "list[RecoveredShard]":
    """Recover the shards of a vhost that may be recovered from a broker, or find out what that costs.

    If none may be, the broker that is asked says why for the first one.
    """
    first = connection.admin.recover_shard(vhost, broker)
    found = [
        first,
        *(connection.admin.recover_shard(vhost, broker, number=each) for each in range(1, first.shard_count)),
    ]
    if not accept_loss:
        return found
    wanted = [each for each in found if not each.problem] or [first]
    return [connection.admin.recover_shard(vhost, broker, accept_loss=True, number=each.number) for each in wanted]


def outcome_of(found: "Sequence[RecoveredShard]") -> str:
    """Return how shards were recovered, as the end of a sentence."""
    broker, epochs = found[0].broker, [each.epoch for each in found]
    before = "" if any(each.recovered for each in found) else " as before"
    if not all(epochs):
        return f"{before} from broker '{broker}', which does not lead yet: see its log"
    if found[0].shard_count == 1:
        return f"{before} from broker '{broker}', which leads in epoch {epochs[0]}"
    numbers = ", ".join(str(each.number) for each in found)
    return f"{before} from broker '{broker}', which leads its shards {numbers}"
