"""Finds the backup that a new Cluster begins with.

It counts until the init container has reported, which the status remembers: from then on the pod has no such container,
and depends on no backup, volume or bucket any more. A volume that is lost later is told as lost, and nothing is
restored onto it without being asked.
"""

from typing import Any

from pydantic import ValidationError

from penstock_operator.api import BackupSpec, Target
from penstock_operator.desired import Owner
from penstock_operator.desired.backup import Phase, phase_of
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.home import NotYet
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def backup_to_restore(world: World, manifest: Manifest, owner: Owner) -> Target | None:
    """Return the file to restore; None if there is none, or it was restored. Raises NotYet while it is not there."""
    wanted = owner.spec.restore_from
    if wanted is None or manifest.get("status", {}).get("restore") is not None:
        return None
    if wanted.target is not None:
        return wanted.target
    name = str(wanted.backup_name)
    key = Key("Backup", owner.namespace, name)
    found = world.store.get(key)
    if found is None:
        raise NotYet("BackupNotFound", f"there is no Backup '{name}' in namespace '{owner.namespace}' to restore")
    phase = phase_of(found)
    if phase is not Phase.COMPLETED:
        raise NotYet("BackupNotCompleted", f"Backup '{name}', which is to be restored, is {phase}")
    try:
        spec = world.store.spec(key)
    except (KeyError, ValidationError) as error:
        raise NotYet("BackupNotFound", f"the spec of Backup '{name}' is invalid") from error
    assert isinstance(spec, BackupSpec)
    return spec.target.of(name)
