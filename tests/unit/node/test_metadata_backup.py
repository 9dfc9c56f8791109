"""The metadata in a backup of a cluster: it has the shards of the virtual hosts that were copied, or is refused."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.cluster.meta.member import MetaBackup
from penstock.cluster.record import BrokerName
from penstock.cluster.translation import shard_id
from penstock.model.errors import PreconditionFailedError
from penstock.model.names import VhostName
from penstock.node.in_cluster.cluster_view import ClusterView
from penstock.node.in_cluster.metadata_backup import MetadataBackups
from penstock.storage import VhostCopy

SHOP, BAY = VhostName("shop"), VhostName("bay")
BROKERS = (BrokerName("mq-0"), BrokerName("mq-1"))
CLUSTER = bytes(16)


class FakeLog:
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


class World:
    """The metadata has a virtual host with two shards, and one that was created after the copies."""

    def __init__(self) -> None:
        self.log = FakeLog()
        self.shards = {"shop.0.1": (SHOP, BROKERS), "shop.1.1": (SHOP, BROKERS), "bay.0.2": (BAY, BROKERS)}
        self.numbers = {SHOP: 1, BAY: 2}
        self.kept_below, self.kept_shards = 2, {SHOP: 2}

    async def begin_backup(self) -> MetaBackup:
        return MetaBackup(77, b"state", cast(Any, self.log), self.shards, BROKERS, self.numbers)

    def back_up(self, *names: VhostName) -> tuple[list[str], list[tuple[str, str | None, bytes]]]:
        """Return the virtual hosts and the shards of a backup."""
        host = SimpleNamespace(me=SimpleNamespace(cluster=CLUSTER))
        view = cast(ClusterView, SimpleNamespace(member=self, host=host, cluster="test"))
        backups = MetadataBackups(view, lambda: self.kept_below, lambda: self.kept_shards)
        copies = [VhostCopy(name, cast(Any, None), cast(Any, None)) for name in names]
        kept, metadata = asyncio.run(backups.begin_backup(copies))
        return [each.name for each in kept], [(each.name, each.vhost, each.log) for each in metadata.shards]


def test_it_has_all_shards_of_the_copied_virtual_hosts_that_are_still_there() -> None:
    world = World()

    kept, shards = world.back_up(SHOP, VhostName("deleted"))

    assert kept == [SHOP]
    assert [(name, vhost) for name, vhost, _ in shards] == [("meta", None), ("shop.0.1", SHOP), ("shop.1.1", SHOP)]
    assert [log for *_, log in shards] == [shard_id(CLUSTER, name) for name, *_ in shards]


@pytest.mark.parametrize(
    ("change", "text"),
    [({"kept_below": 1}, "was deleted and made again"), ({"kept_shards": {SHOP: 1}}, "got more shards meanwhile")],
)
def test_a_virtual_host_that_changed_after_its_copy_is_refused(change: dict[str, Any], text: str) -> None:
    world = World()
    vars(world).update(change)

    with pytest.raises(PreconditionFailedError, match=text):
        world.back_up(SHOP)
    assert world.log.is_closed
