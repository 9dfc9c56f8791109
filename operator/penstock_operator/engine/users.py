"""Passwords of users: a generated Secret, or one that the manifest names.

A password is never in a manifest, a status, an event or a log. One that the operator has generated is sent to the
broker as a random one, whose digest is cheap. The operator trusts only its own memory for that, as users may write the
Secret: after its restart, a password that must be set again gets a costly digest.
"""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

from penstock.client.uri import Address
from penstock_operator.api import GrantSpec, TopologySpec, UserSpec
from penstock_operator.api.kinds import API_VERSION
from penstock_operator.desired.access import binding, user_secret
from penstock_operator.desired.naming import CLUSTER_LABEL, FIELD_MANAGER
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.children import REFUSALS
from penstock_operator.engine.home import Home, NotYet, password_in
from penstock_operator.engine.named_secrets import read_named
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError

Manifest = dict[str, Any]
CONFLICT: Final = 409


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials of a user, and the Secret that has them."""

    address: Address
    secret: str
    # Whether the operator has generated the password itself, since its start.
    is_generated: bool = False

    @property
    def password(self) -> str:
        return self.address.password


def find_credentials(
    world: World, manifest: Manifest, spec: UserSpec, home: Home, *, may_make: bool = True
) -> Credentials | None:
    """Return the credentials; make the Secret if needed, or return None if it may not be made. Raises NotYet."""
    try:
        return _find(world, manifest, spec, home, may_make=may_make)
    except ApiError as error:
        if error.code not in REFUSALS or error.code == CONFLICT:
            raise  # no answer, or another writer was faster
        raise NotYet("SecretRefused", f"the Secret of this User cannot be written: {error}") from error


def _find(world: World, manifest: Manifest, spec: UserSpec, home: Home, *, may_make: bool) -> Credentials | None:
    metadata = manifest["metadata"]
    imported = spec.import_credentials_secret
    name = imported.name if imported else f"{metadata['name']}-user-credentials"
    read = read_named if imported else _read
    secret = read(world, metadata["namespace"], name)
    if secret is None:
        if imported:
            raise NotYet(
                "SecretNotFound", f"there is no Secret '{name}' in this namespace; make it with a key 'password'"
            )
        if not may_make:
            return None
        secret = _made(world, manifest, spec, home, name)
    if not imported and not _is_ours(secret, metadata["uid"]):
        raise NotYet(
            "SecretTaken",
            f"the Secret '{name}' is not this User's; rename the User, or name it in importCredentialsSecret",
        )
    password = password_in(secret)
    if not imported:
        world.write_secret(secret, binding(home.endpoint, spec.name, password, home.authority))
    is_generated = world.generated.get(Key("Secret", metadata["namespace"], name)) == mark_of(password)
    return Credentials(home.address_of(spec.name, password), name, is_generated)


def resolve_user(world: World, manifest: Manifest, spec: TopologySpec) -> TopologySpec:
    """Return the grant with the broker's name of its User object. Raises NotYet."""
    if not isinstance(spec, GrantSpec) or spec.user_ref is None:
        return spec
    namespace = manifest["metadata"]["namespace"]
    user = world.store.get(Key("User", namespace, spec.user_ref.name))
    if user is None:
        raise NotYet("UserNotFound", f"there is no User '{spec.user_ref.name}' in this namespace; apply it first")
    return spec.model_copy(update={"user": user["spec"]["name"]})


def _read(world: World, namespace: str, name: str) -> Manifest | None:
    known = world.store.get(Key("Secret", namespace, name))
    return known if known is not None else world.kubernetes.read("v1", "Secret", namespace, name)


def _made(world: World, manifest: Manifest, spec: UserSpec, home: Home, name: str) -> Manifest:
    owner = manifest["metadata"]
    metadata = {
        "name": name,
        "namespace": owner["namespace"],
        "labels": {"app.kubernetes.io/managed-by": FIELD_MANAGER, CLUSTER_LABEL: home.owner.name if home.owner else ""},
        "ownerReferences": [
            {
                "apiVersion": API_VERSION,
                "kind": "User",
                "name": owner["name"],
                "uid": owner["uid"],
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ],
    }
    password = world.password()
    data = binding(home.endpoint, spec.name, password, home.authority)
    made = world.kubernetes.create(user_secret(metadata, data))
    world.generated[Key("Secret", owner["namespace"], name)] = mark_of(password)
    world.store.put(made)
    return made


def mark_of(password: str) -> str:
    """Return what tells random passwords apart without keeping them."""
    return hashlib.sha256(password.encode()).hexdigest()


def forget_generated(world: World) -> None:
    """Forget the passwords whose Secrets are gone."""
    for secret in [each for each in list(world.generated) if world.store.get(each) is None]:
        world.generated.pop(secret, None)


def _is_ours(secret: Manifest, uid: str) -> bool:
    return any(each.get("uid") == uid for each in secret["metadata"].get("ownerReferences", []))
