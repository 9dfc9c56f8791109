"""The metadata of a cluster in a backup, with the shards that the backup has.

It is fixed after the logs of virtual hosts: so it has all queues that have messages there.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from penstock.cluster.meta.member import MetaBackup
from penstock.cluster.translation import shard_id
from penstock.model.errors import PreconditionFailedError, Thing
from penstock.model.names import VhostName
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.storage import MetadataCopy, VhostCopy
from penstock.storage.cluster_backup import ShardOfBackup
from penstock.storage.cluster_json import META

_WAY_OUT: Final = "retry when none is deleted and made again"


class MetadataBackups:
    """Implements `services.backups.MetadataSource`.

    `kept_below` is above the numbers of the virtual hosts that are copied, and `kept_shards` has the numbers of their
    shards.
    """

    def __init__(
        self, view: ClusterView, kept_below: Callable[[], int], kept_shards: Callable[[], Mapping[VhostName, int]]
    ) -> None:
        self._view = view
        self._kept_below = kept_below
        self._kept_shards = kept_shards

    async def begin_backup(self, vhosts: Sequence[VhostCopy]) -> tuple[list[VhostCopy], MetadataCopy]:
        """Fix the metadata; return it, and the copied virtual hosts that it still has.

        Raises PreconditionFailedError, NotLeaderError, StoppedError and StorageError.
        """
        copy = await self._view.member.begin_backup()
        try:
            kept = [each for each in vhosts if VhostName(each.name) in copy.numbers]
            self._check_same(kept, copy)
            shards = (self._metadata(copy), *self._shards(kept, copy))
        except BaseException:
            copy.log.close()
            raise
        return kept, MetadataCopy(self._view.cluster, shards, copy.position, copy.checkpoint, copy.log)

    def _check_same(self, vhosts: Sequence[VhostCopy], copy: MetaBackup) -> None:
        for each in vhosts:
            if copy.numbers[VhostName(each.name)] >= self._kept_below():
                rule = "cannot be backed up: it was deleted and made again meanwhile"
                raise PreconditionFailedError(Thing("vhost", each.name), rule, _WAY_OUT)
        counts = Counter(vhost for vhost, _ in copy.shards.values())
        for each in vhosts:
            if counts[VhostName(each.name)] != self._kept_shards()[VhostName(each.name)]:
                rule = "cannot be backed up: it got more shards meanwhile"
                raise PreconditionFailedError(Thing("vhost", each.name), rule, "retry")

    def _metadata(self, copy: MetaBackup) -> ShardOfBackup:
        return ShardOfBackup(META, None, self._log_id(META), tuple(copy.brokers))

    def _shards(self, vhosts: Sequence[VhostCopy], copy: MetaBackup) -> list[ShardOfBackup]:
        names = {each.name for each in vhosts}
        return [
            ShardOfBackup(shard, vhost, self._log_id(shard), tuple(brokers))
            for shard, (vhost, brokers) in copy.shards.items()
            if vhost in names
        ]

    def _log_id(self, shard: str) -> bytes:
        return shard_id(self._view.host.me.cluster, shard)
