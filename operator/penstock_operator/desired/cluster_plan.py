"""The plan of a Cluster: what its objects are built for, which its manifest alone does not say.

The revision is the form in which this operator writes the pod and the configuration file. A newer operator brings newer
revisions, and a running broker keeps its own until its image changes: no upgrade of the operator restarts brokers, and
no broker gets a setting that its version does not know. Objects of an earlier revision never change, not even by the
default of a new field; golden files compare them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from penstock_operator.api.backup import Target
from penstock_operator.desired.naming import REVISION_ANNOTATION, Owner

Manifest = dict[str, Any]
# 1: the administrator's password is in the pod's environment. 2: the broker reads it from a mounted file.
FIRST: Final = 1
NEWEST: Final = 2
IMAGES_MAX: Final = 10


@dataclass(frozen=True, slots=True)
class Plan:
    """The brokers that should run, by ordinal, the size of their volumes, and the revision of their objects.

    `restore` is the backup that is to be restored before the broker starts for the first time.
    """

    ordinals: tuple[int, ...]
    size: str
    revision: int
    restore: Target | None = None

    @property
    def has_password_file(self) -> bool:
        """Return whether the broker reads the administrator's password again when it changes."""
        return self.revision >= 2


def plan(owner: Owner, revision: int = NEWEST, size: str | None = None, restore: Target | None = None) -> Plan:
    """Return the plan; the size is the manifest's unless the volumes cannot have it."""
    return Plan(tuple(range(owner.spec.replicas)), size or owner.spec.storage.size, revision, restore)


def revision(image: str, workload: Manifest | None, known: list[Manifest], annotations: Mapping[str, str]) -> int:
    """Return the revision for an image.

    A user's annotation counts first, then the StatefulSet that runs this image, then the revisions that the status
    knows. A new image is taken for a new one. An image that runs without a record is of an operator from before
    revisions.
    """
    asked = annotations.get(REVISION_ANNOTATION, "")
    if asked.isdecimal() and FIRST <= int(asked) <= NEWEST:
        return int(asked)
    runs = workload is not None and _image_of(workload) == image
    recorded = (workload or {"metadata": {}})["metadata"].get("annotations", {}).get(REVISION_ANNOTATION)
    remembered = next((each.get("revision") for each in known if each.get("image") == image), None)
    for number in (recorded if runs else None, remembered):
        if str(number).isdecimal():
            return max(FIRST, min(NEWEST, int(str(number))))
    return FIRST if runs else NEWEST


def revisions(image: str, used: int, known: list[Manifest]) -> list[Manifest]:
    """Return the revisions to remember: a Cluster that goes back to an earlier image gets that image's revision."""
    others = [each for each in known if each.get("image") != image]
    return [*others, {"image": image, "revision": used}][-IMAGES_MAX:]


def _image_of(workload: Manifest) -> str:
    containers = workload.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
    return next((str(each.get("image")) for each in containers if each.get("name") == "broker"), "")
