"""Finds the broker of an object's Cluster: whether that accepts the object's namespace, and how to log in.

An obstacle is a NotYet with a reason for the object's condition.
"""

import base64
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import ValidationError

from penstock.client.uri import Address, Tls
from penstock_operator.api import ClusterSpec
from penstock_operator.api.cluster import AllowedNamespaces
from penstock_operator.desired.cluster_status import waits_after_loss
from penstock_operator.desired.conditions import status_of
from penstock_operator.desired.naming import ADMINISTRATOR, Endpoint, Owner
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.store import broker_of
from penstock_operator.engine.world import World
from penstock_operator.links.certificates import pem_file

Manifest = dict[str, Any]
# The broker's own bound. A longer one may be more than a connection takes, as if the broker did not answer.
PASSWORD_BYTES_MAX: Final = 1_024


class NotYet(Exception):
    """An obstacle. The reason is one word for the condition; the text says what to do; `drift` names fields."""

    def __init__(self, reason: str, message: str, drift: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.reason = reason
        self.drift = drift


@dataclass(frozen=True, slots=True)
class Home:
    """A broker with its address and the operator's credentials."""

    # The Cluster, or the Secret that leads to the broker.
    key: Key
    # Where the links keep what they know of it.
    place: str
    endpoint: Endpoint
    password: str = field(repr=False)
    # CA to trust, in PEM; empty: the machine's own.
    authority: str = ""
    # Client certificate and key in PEM, where the Cluster requires one.
    shown: tuple[str, str] | None = field(default=None, repr=False)
    # The operator's own account, from the Secret.
    account: str = ADMINISTRATOR
    # The Cluster, if the operator runs the broker.
    owner: Owner | None = None

    @property
    def tls(self) -> Tls | None:
        if not self.endpoint.has_tls:
            return None
        cert, key = (pem_file(each) for each in self.shown) if self.shown else (None, None)
        return Tls(ca=pem_file(self.authority) if self.authority else None, cert=cert, key=key)

    def address(self, vhost: str = "/", *, password: str | None = None) -> Address:
        """Return the address for the operator."""
        chosen = self.password if password is None else password
        return Address(self.endpoint.host, self.endpoint.port, self.account, chosen, vhost, self.tls)

    def address_of(self, user: str, password: str) -> Address:
        return Address(self.endpoint.host, self.endpoint.port, user, password, "/", self.tls)


def owner_of(manifest: Manifest, operator_namespace: str = "") -> Owner:
    """Return the owner. Raises pydantic's ValidationError when the CRD accepted a value that the types do not."""
    metadata = manifest["metadata"]
    spec = ClusterSpec.model_validate(manifest["spec"])
    return Owner(metadata["name"], metadata["namespace"], metadata["uid"], spec, operator_namespace)


def find_home(world: World, manifest: Manifest) -> Home:
    """Return the broker of an object that is to be applied. Raises NotYet."""
    key, found = find_cluster(world, manifest)
    if found is None:
        raise NotYet(
            "ClusterNotFound", f"there is no Cluster '{key.name}' in namespace '{key.namespace}'; apply it first"
        )
    owner = known_owner(world, key, found)
    namespace = manifest["metadata"]["namespace"]
    if not admits(world, owner, namespace):
        raise NotYet(
            "NamespaceNotAllowed",
            f"Cluster '{owner.name}' takes nothing from namespace '{namespace}';"
            " allow it in the Cluster's spec.topology.allowedNamespaces",
        )
    if owner.spec.paused:
        raise NotYet("ClusterPaused", f"Cluster '{key.name}' is paused; set its spec.paused to false")
    conditions = found.get("status", {}).get("conditions", [])
    if status_of(conditions, "DataLost") == "True" and waits_after_loss(owner):
        raise NotYet("DataLost", f"Cluster '{key.name}' lost its data and waits, as its spec.storage.lossPolicy says")
    if status_of(conditions, "Ready") != "True":
        raise NotYet("ClusterNotReady", f"Cluster '{key.name}' is not ready; its own conditions say why")
    return enter(world, owner)


def find_cluster(world: World, manifest: Manifest) -> tuple[Key, Manifest | None]:
    """Return the key of an object's Cluster, and its manifest if there is one."""
    key = broker_of(manifest)
    return key, world.store.get(key)


def known_owner(world: World, key: Key, manifest: Manifest) -> Owner:
    """Return the owner, whose spec is checked once for all its objects. Raises NotYet when it is invalid."""
    try:
        spec = world.store.spec(key)
    except (KeyError, ValidationError) as error:
        raise NotYet(
            "ClusterNotReady", f"the spec of Cluster '{key.name}' is invalid; its conditions say why"
        ) from error
    assert isinstance(spec, ClusterSpec)
    return Owner(key.name, key.namespace, manifest["metadata"]["uid"], spec)


def admits(world: World, owner: Owner | None, namespace: str) -> bool:
    """Return whether a Cluster takes objects from a namespace. A Secret leads those of its own to a broker."""
    return owner is None or _is_among(world, owner, owner.spec.topology.allowed_namespaces, namespace)


def may_administer(world: World, owner: Owner | None, namespace: str) -> bool:
    """Return whether objects in a namespace may give users tags above `management`.

    By a Secret they may do what the account in it may do.
    """
    return owner is None or _is_among(world, owner, owner.spec.topology.administrators_from, namespace)


def enter(world: World, owner: Owner) -> Home:
    """Return the broker, ready or not. Raises NotYet."""
    secret = _administrator_secret(world, owner)
    # The password that the broker accepted last counts until it follows the Secret.
    password = world.accepted.get((owner.namespace, owner.name))
    if password is None:
        if secret is None:
            raise NotYet("SecretNotFound", f"the Secret '{owner.secret}' is not there")
        password = administrator_password(secret)
    key, authority, shown = (
        Key("Cluster", owner.namespace, owner.name),
        authority_of(world, owner),
        _shown(world, owner),
    )
    return Home(key, owner.host, owner.endpoint, password, authority, shown, _account(secret), owner)


def _account(secret: Manifest | None) -> str:
    """Return the name of the operator's own account."""
    encoded = ((secret or {}).get("data") or {}).get("username")
    return base64.b64decode(encoded).decode("utf-8", "replace") if encoded else ADMINISTRATOR


def _administrator_secret(world: World, owner: Owner) -> Manifest | None:
    secret = world.store.get(Key("Secret", owner.namespace, owner.secret))
    if secret is None:
        secret = world.read_soon("v1", "Secret", owner.namespace, owner.secret)
    return secret


def authority_of(world: World, owner: Owner) -> str:
    """Return `ca.crt` of the Cluster's certificate, empty without TLS.

    A broker that serves TLS keeps its certificate while the Secret is missing: then the authority counts that clients
    have from the administrator's Secret. Raises NotYet when there is neither.
    """
    if owner.spec.tls is None:
        return ""
    try:
        return _certificate(world, owner, owner.spec.tls.secret_name)["ca.crt"]
    except NotYet:
        served = _authority_of_clients(world, owner)
        if served is None:
            raise
        return served


def own_certificate_problem(world: World, owner: Owner) -> NotYet | None:
    """Return what is wrong with the Secret of the operator's own certificate."""
    if owner.spec.tls is None or owner.spec.tls.client_certificates is None:
        return None
    try:
        _certificate(world, owner, owner.spec.tls.client_certificates.operator_secret_name)
    except NotYet as reason:
        return reason
    return None


def certificate_problem(world: World, owner: Owner) -> NotYet | None:
    """Return what is wrong with the Secrets of the certificates that the pod mounts."""
    tls = owner.spec.tls
    if tls is None:
        return None
    try:
        _certificate(world, owner, tls.secret_name)
        authority = tls.client_certificates.authority_secret_name if tls.client_certificates else None
        if authority and world.kubernetes.read("v1", "Secret", owner.namespace, authority) is None:
            return NotYet("CertificateNotFound", f"the Secret '{authority}' of spec.tls is not there; make it")
    except NotYet as reason:
        return reason
    return None


def _authority_of_clients(world: World, owner: Owner) -> str | None:
    secret = world.kubernetes.read("v1", "Secret", owner.namespace, owner.secret)
    data = (secret or {}).get("data") or {}
    uri, authority = (base64.b64decode(data.get(key, "")).decode("ascii", "replace") for key in ("uri", "ca.crt"))
    return authority if uri.startswith("penstocks:") else None


def _shown(world: World, owner: Owner) -> tuple[str, str] | None:
    if owner.spec.tls is None or owner.spec.tls.client_certificates is None:
        return None
    place = (owner.namespace, owner.name)
    try:
        found = _certificate(world, owner, owner.spec.tls.client_certificates.operator_secret_name)
    except NotYet:
        if place not in world.shown:
            raise
        return world.shown[place]  # it is still valid, and the condition TLSValid names the Secret
    world.shown[place] = (found["tls.crt"], found["tls.key"])
    return world.shown[place]


def _certificate(world: World, owner: Owner, name: str) -> dict[str, str]:
    """Return the texts of a Secret of the type kubernetes.io/tls; `ca.crt` may be empty."""
    secret = world.read_soon("v1", "Secret", owner.namespace, name)
    if secret is None:
        raise NotYet("CertificateNotFound", f"the Secret '{name}' of spec.tls is not there; make it")
    data = secret.get("data") or {}
    missing = [key for key in ("tls.crt", "tls.key") if key not in data]
    if missing:
        raise NotYet("CertificateIncomplete", f"the Secret '{name}' lacks {' and '.join(missing)}")
    keys = ("tls.crt", "tls.key", "ca.crt")
    return {key: base64.b64decode(data.get(key, "")).decode("ascii", "replace") for key in keys}


def password_in(secret: Manifest) -> str:
    """Return the password in a Secret. Raises NotYet."""
    encoded, name = (secret.get("data") or {}).get("password"), secret["metadata"]["name"]
    if not encoded:
        raise NotYet("SecretIncomplete", f"the Secret '{name}' has no key 'password'; add it")
    content = base64.b64decode(encoded)
    if len(content) > PASSWORD_BYTES_MAX:
        raise NotYet(
            "SecretInvalid",
            f"the password in the Secret '{name}' has {len(content)} bytes, and the broker takes"
            f" {PASSWORD_BYTES_MAX} at most; write a shorter one",
        )
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise NotYet("SecretInvalid", f"the password in the Secret '{name}' is not UTF-8; write another one") from error


def administrator_password(secret: Manifest) -> str:
    """Return the password in a Cluster's Secret as the broker reads it from its file: one line. Raises NotYet."""
    password = password_in(secret).removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        name = secret["metadata"]["name"]
        raise NotYet("SecretInvalid", f"the password in the Secret '{name}' is not one line; write another one")
    return password


def _is_among(world: World, owner: Owner, allowed: AllowedNamespaces, namespace: str) -> bool:
    if namespace == owner.namespace or allowed.from_ == "All":
        return True
    if allowed.from_ == "Same":
        return False
    found = world.store.get(Key("Namespace", "", namespace)) or world.kubernetes.read(
        "v1", "Namespace", None, namespace
    )
    labels = ((found or {}).get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in (allowed.match_labels or {}).items())
