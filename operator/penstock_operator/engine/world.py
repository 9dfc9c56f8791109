"""Dependencies of every reconcile: the links, the cache, the time. Passed in, so that tests can replace them."""

import secrets
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from penstock.client.uri import Tls
from penstock_operator.desired.connection import Connection
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.store import Store
from penstock_operator.links import ApiError, Brokers, Kubernetes
from penstock_operator.links.certificates import good_until

Manifest = dict[str, Any]
NOT_FOUND = 404
READ_SECONDS = 2.0


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _password() -> str:
    return secrets.token_urlsafe(24)


@dataclass(slots=True)
class World:
    """Dependencies of a reconcile; `add` schedules an object after some seconds."""

    kubernetes: Kubernetes
    brokers: Brokers
    store: Store
    add: Callable[[Key, float], None]
    clock: Callable[[], float]
    resync_seconds: float = 300.0
    jitter: Callable[[], float] = field(default=lambda: 1.0)
    now: Callable[[], str] = field(default=_now)
    password: Callable[[], str] = field(default=_password)
    # Namespace of the operator's own pod; empty outside of a Kubernetes cluster.
    operator_namespace: str = ""
    # Whether this operator still acts: a reconcile may take longer than its Lease.
    acts: Callable[[], bool] = field(default=lambda: True)
    good_until: Callable[[str, int, Tls], str] = field(default=good_until)
    # Passwords of administrators that brokers accepted last, by namespace and name of the Cluster.
    accepted: dict[tuple[str, str], str] = field(default_factory=dict)
    # Marks of the passwords of users that the operator has generated, by Secret.
    generated: dict[Key, str] = field(default_factory=dict)
    # Whether objects may lead to brokers that the operator does not run, and the connections to these, by Secret.
    allows_connections: bool = False
    connections: dict[Key, Connection] = field(default_factory=dict)
    # The operator's certificates and keys for brokers that ask for one, by the same.
    shown: dict[tuple[str, str], tuple[str, str]] = field(default_factory=dict)
    _read: dict[tuple[str, str, str], tuple[float, Manifest | None]] = field(default_factory=dict)

    def resync(self) -> float:
        """Return the time of the next check of a healthy object, spread over time."""
        return self.resync_seconds * self.jitter()

    def resync_with(self, broker: Key) -> float:
        """Return the time of the next check of an object in a broker: that of all of them, which share lists."""
        period = self.resync_seconds
        left = period - (self.clock() + zlib.crc32("/".join(broker).encode())) % period
        return left if left > period / 4 else left + period

    def read_soon(self, api_version: str, kind: str, namespace: str, name: str) -> Manifest | None:
        """Read an object that is not watched; one that was read a moment ago is good enough."""
        now, place = self.clock(), (kind, namespace, name)
        at, known = self._read.get(place, (-READ_SECONDS, None))
        if known is not None and now - at < READ_SECONDS:
            return known
        found = self.kubernetes.read(api_version, kind, namespace, name)
        kept = {each: old for each, old in self._read.items() if now - old[0] < READ_SECONDS}
        self._read = {**kept, place: (now, found)}  # other threads may read the old one
        return found

    def write_status(self, manifest: Manifest, status: Manifest, *, is_exact: bool = False) -> None:
        """Write a status when it changed. Keys that are None are removed.

        An exact write is refused when the object changed meanwhile: what was decided on an older one may be wrong.
        """
        before = manifest.get("status") or {}
        if all(before.get(key) == value for key, value in status.items()):
            return
        about = {"metadata": {"resourceVersion": manifest["metadata"]["resourceVersion"]}} if is_exact else {}
        self.store.put(self._patched(manifest, {**about, "status": status}, part="status"))

    def write_secret(self, secret: Manifest, data: dict[str, str]) -> None:
        """Update derived data such as the address. The password in `data` is the Secret's own."""
        if any(secret.get("data", {}).get(key) != value for key, value in data.items()):
            about = {**secret, "apiVersion": "v1", "kind": "Secret"}
            self.store.put(self.kubernetes.patch(about, {"data": data}))

    def write_finalizers(self, manifest: Manifest, finalizers: list[str]) -> Manifest:
        """Write finalizers.

        The API server refuses when the object changed meanwhile; the next reconcile handles that.
        """
        metadata = manifest["metadata"]
        change = {"metadata": {"finalizers": finalizers, "resourceVersion": metadata["resourceVersion"]}}
        changed = self._patched(manifest, change)
        if changed["metadata"].get("deletionTimestamp") and not changed["metadata"].get("finalizers"):
            self.store.drop(Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"]))
        else:
            self.store.put(changed)
        return changed

    def _patched(self, manifest: Manifest, change: Manifest, *, part: str = "") -> Manifest:
        """Patch an object. It also detects a deletion that a broken watch missed."""
        try:
            return self.kubernetes.patch(manifest, change, part=part)
        except ApiError as error:
            if error.code != NOT_FOUND:
                raise
            metadata = manifest["metadata"]
            key = Key(manifest["kind"], metadata.get("namespace", ""), metadata["name"])
            there = self.kubernetes.read(manifest["apiVersion"], key.kind, key.namespace, key.name)
            if part and there is not None and there["metadata"].get("uid") == metadata["uid"]:
                # Dropped, it would claim nothing any more.
                why = f"its kind has no subresource '{part}'; upgrade the kinds of the operator's chart"
                raise ApiError(NOT_FOUND, why) from error
            self.store.drop(key, metadata["uid"])
            raise
