"""The administrator's Secret of a Cluster: made if it is missing, rotated when asked, and never out of step for long.

The Secret has the password, and the broker follows it: it reads the mounted file again when Kubernetes has updated it,
which takes up to a minute, and accepts the previous password for some time after that. In between, the operator logs in
with the password that the broker accepted last. A broker of an earlier revision has its password for good, so its
Secret is made again with that password where the operator still knows it, and is never rotated.
"""

from typing import Any, Final

from penstock_operator.desired import Owner, Plan
from penstock_operator.desired.access import administrator_secret, binding
from penstock_operator.desired.conditions import Says
from penstock_operator.desired.naming import ADMINISTRATOR, CLUSTER_LABEL, ROTATE_ANNOTATION
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.children import REFUSALS
from penstock_operator.engine.home import NotYet, administrator_password, authority_of
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
CONFLICT: Final = 409


def ensure_secret(world: World, manifest: Manifest, owner: Owner, plan: Plan) -> Says | None:
    """Make, correct or rotate the Secret; return what keeps it from being as it should."""
    try:
        return _ensure(world, manifest, owner, plan)
    except NotYet as reason:
        return Says("PasswordSynced", "False", reason.reason, str(reason))
    except ApiError as error:
        if error.code not in REFUSALS or error.code == CONFLICT:
            raise  # another writer was faster
        return Says("PasswordSynced", "False", "ApplyRefused", f"Secret '{owner.secret}': {error}")


def _ensure(world: World, manifest: Manifest, owner: Owner, plan: Plan) -> Says | None:
    secret = world.kubernetes.read("v1", "Secret", owner.namespace, owner.secret)
    authority = _authority(world, owner)
    if secret is None:
        _make(world, manifest, owner, plan, authority)
        return None
    is_to_rotate = _is_to_rotate(manifest, secret)
    if is_to_rotate and plan.has_password_file:
        _rotate(world, manifest, owner, secret, authority)
        return None
    _correct(world, owner, secret, authority)
    if is_to_rotate:
        why = "this image reads the password only once; set spec.image to a newer one, and it is rotated then"
        return Says("PasswordSynced", "False", "RotationUnsupported", why)
    return None


def _authority(world: World, owner: Owner) -> str | None:
    """Return the CA to trust; None while its Secret is missing."""
    try:
        return authority_of(world, owner)
    except NotYet:
        return None


def _make(world: World, manifest: Manifest, owner: Owner, plan: Plan, authority: str | None) -> None:
    known = world.accepted.get((owner.namespace, owner.name))
    password = known if known is not None and not plan.has_password_file else world.password()
    made = administrator_secret(owner, password, authority or "")
    made["metadata"]["annotations"] = _rotated(manifest)
    world.store.put(world.kubernetes.create(made))
    if known is not None:
        message = f"the Secret '{owner.secret}' was missing and was made anew"
        world.kubernetes.tell(manifest, is_warning=True, reason="SecretMade", message=message)


def _correct(world: World, owner: Owner, secret: Manifest, authority: str | None) -> None:
    """Update derived data and our labels. The password stays: a change by others in between is a conflict."""
    data = binding(owner.endpoint, ADMINISTRATOR, administrator_password(secret), authority or "")
    data["password"] = secret["data"]["password"]
    metadata, change = secret["metadata"], Manifest()
    if authority is not None and any((secret.get("data") or {}).get(key) != value for key, value in data.items()):
        change["data"] = data
    if metadata.get("labels", {}).get(CLUSTER_LABEL) != owner.name:
        change["metadata"] = {"labels": owner.labels}
    if not change:
        world.store.put({**secret, "apiVersion": "v1", "kind": "Secret"})
        return
    change.setdefault("metadata", {})["resourceVersion"] = metadata["resourceVersion"]
    world.store.put(_patched(world, secret, change))


def _is_to_rotate(manifest: Manifest, secret: Manifest) -> bool:
    wanted = _rotated(manifest).get(ROTATE_ANNOTATION)
    return wanted is not None and secret["metadata"].get("annotations", {}).get(ROTATE_ANNOTATION) != wanted


def _rotate(world: World, manifest: Manifest, owner: Owner, secret: Manifest, authority: str | None) -> None:
    """Write another password, and in the same request the annotation that it was asked by: both or neither."""
    change = {
        "metadata": {"annotations": _rotated(manifest), "resourceVersion": secret["metadata"]["resourceVersion"]},
        "data": binding(owner.endpoint, ADMINISTRATOR, world.password(), authority or ""),
    }
    world.store.put(_patched(world, secret, change))
    message = f"the password in the Secret '{owner.secret}' was replaced; the broker reads it within a minute or two"
    world.kubernetes.tell(manifest, is_warning=False, reason="PasswordRotated", message=message)


def _rotated(manifest: Manifest) -> dict[str, str]:
    asked = manifest["metadata"].get("annotations", {}).get(ROTATE_ANNOTATION)
    return {} if asked is None else {ROTATE_ANNOTATION: asked}


def _patched(world: World, secret: Manifest, change: Manifest) -> Manifest:
    return world.kubernetes.patch({**secret, "apiVersion": "v1", "kind": "Secret"}, change)


def passwords(world: World, owner: Owner) -> dict[str, bool]:
    """Return the passwords to try in their order, and whether each is the Secret's. Raises NotYet."""
    secret = world.store.get(Key("Secret", owner.namespace, owner.secret))
    known = world.accepted.get((owner.namespace, owner.name))
    try:
        if secret is None:
            raise NotYet("SecretNotFound", f"the Secret '{owner.secret}' is not there")
        found = {administrator_password(secret): True}
    except NotYet:
        if known is None:
            raise
        found = {}
    return found if known is None else {**found, known: known in found}
