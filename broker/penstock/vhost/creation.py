"""Creating a virtual host: what is checked before one is made, of one broker or of a cluster."""

from penstock.metadata import check_default_queue_type, check_shard_count
from penstock.model.errors import Thing
from penstock.model.names import vhost_name
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.rights import Rights


async def create(
    vhosts: AllVhosts, rights: Rights, name: str, shard_count: int, default_queue_type: str | None
) -> bool:
    """Return whether it is new. One that exists only gets the default queue type, if one is given."""
    checked = vhost_name(name)
    thing = Thing("vhost", checked)
    rights.require_administrator(thing)
    check_shard_count(thing, shard_count)
    if default_queue_type is not None:
        check_default_queue_type(thing, default_queue_type)
    is_new = await vhosts.make(checked, shard_count)
    if default_queue_type is not None:
        await vhosts.get(checked).set_default_queue_type(rights, default_queue_type)
    return is_new
