"""The watches: they put Kubernetes' events into the cache and their keys to the workers.

They decide nothing and wait for nothing; kopf keeps no state of ours and writes nothing.
"""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import kopf

from penstock_operator.api import GROUP, KINDS, VERSION
from penstock_operator.desired.naming import CLUSTER_LABEL
from penstock_operator.engine import Key, Store
from penstock_operator.engine.intake import gone, seen

WATCHED_CHILDREN = (
    ("apps", "v1", "statefulsets"),
    ("", "v1", "pods"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("", "v1", "secrets"),
    ("", "v1", "persistentvolumeclaims"),
    ("batch", "v1", "jobs"),
)
# Kinds of ours that own children, beside the Cluster.
_OWNERS = frozenset({"User", "Backup"})
BACKOFF_SECONDS_MAX: Final = 30.0
Add = Callable[[Key], None]
Event = kopf.RawEvent


def register(registry: kopf.OperatorRegistry, store: Store, add: Add) -> None:
    """Register a watch per kind, one for namespaces, and one per kind of child, for objects with our label only."""

    async def see_object(*, event: Event, **_: Any) -> None:
        for key in take(store, event):
            add(key)

    async def see_child(*, event: Event, **_: Any) -> None:
        for key in affected(store, event):
            add(key)

    kopf.on.login(registry=registry, id="log-in")(log_in)
    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, registry=registry, id=kind.plural)(see_object)
    kopf.on.event("", "v1", "namespaces", registry=registry, id="namespaces")(see_object)
    for group, version, plural in WATCHED_CHILDREN:
        kopf.on.event(group, version, plural, registry=registry, id=plural, labels={CLUSTER_LABEL: kopf.PRESENT})(
            see_child
        )


class Backoffs:
    """Seconds between the attempts of a request, without end.

    kopf ends the whole operator when a watch has failed for the last time: with its own backoffs after a minute without
    the API server, or with one watched namespace whose role is gone.
    """

    def __iter__(self) -> Iterator[float]:
        yield from (1, 1, 2, 3, 5, 8, 13, 21)
        yield from itertools.repeat(BACKOFF_SECONDS_MAX)


async def log_in(**about: Any) -> kopf.ConnectionInfo | None:
    """Log in as the pod's service account, or by the kubeconfig outside of a cluster."""
    return kopf.login_with_service_account(**about) or kopf.login_with_kubeconfig(**about)


def configure(settings: kopf.OperatorSettings) -> None:
    """Configure kopf only to watch: no peering, posting or state.

    Dead watches are detected, and our resync covers them.
    """
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = False
    settings.queueing.worker_limit = 64
    settings.watching.server_timeout = 300
    settings.watching.client_timeout = 360
    settings.watching.connect_timeout = 10
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = 30
    settings.networking.error_backoffs = Backoffs()
    for group, version, plural in WATCHED_CHILDREN:
        selector = (version, plural) if not group else (group, version, plural)
        settings.watching.label_selectors[selector] = CLUSTER_LABEL


def take(store: Store, event: Event) -> list[Key]:
    """Take an object into the cache, or out of it; return the keys to reconcile."""
    manifest: Any = event["object"]
    if event["type"] == "DELETED":
        metadata = manifest["metadata"]
        key = Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
        return gone(store, key, metadata.get("uid"))
    return seen(store, manifest)


def affected(store: Store, event: Event) -> list[Key]:
    """Return the owners of a changed child: the Cluster by its label, and the owner reference.

    Only Secrets are cached; those that objects name wake these too.
    """
    manifest: Any = event["object"]
    metadata = manifest["metadata"]
    found = take(store, event) if manifest["kind"] == "Secret" else []
    if manifest["kind"] != "Job":  # a Cluster does not depend on the Jobs of its Backups
        found.append(Key("Cluster", metadata["namespace"], metadata["labels"].get(CLUSTER_LABEL, "")))
    for each in metadata.get("ownerReferences", []):
        if each.get("kind") in _OWNERS:
            found.append(Key(each["kind"], metadata["namespace"], each["name"]))
    return [key for key in found if store.get(key) is not None]
