"""A coordinator in the API of Kubernetes: one `Shard` object for each shard, one Kubernetes Lease for each broker.

A record changes by a PUT with the resource version of an object that was read for it and had the version that is to be
replaced. A resource version alone is no version, because it comes back when the API server's store is restored from a
copy. Reads name no resource version, so that the API server answers from its store and not from a cache.
"""

import json
import secrets
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from penstock.cluster.api import REQUEST_S, JsonApi, LostReplyError, Reply
from penstock.cluster.coordinator import (
    Refused,
    UnreachableError,
    Version,
    Versioned,
    changed_or_unknown,
    check_name,
    draw_version,
)
from penstock.cluster.record import ShardRecord, parse_record
from penstock.cluster.sessions import SESSION_S
from penstock.cluster.watching import Listing, Pace, SharedWatch
from penstock.kit.clock import Clock, SystemClock
from penstock.model.errors import StorageError, Thing

GROUP: Final = "penstock.dev"
VERSION: Final = "v1alpha1"
CLUSTER_LABEL: Final = f"{GROUP}/coordinated-cluster"
BEAT: Final = f"{GROUP}/beat"
POLL_S: Final = 5.0
"""The records are listed as often as this, also while a watch of them says nothing."""
PAGE: Final = 500
"""Objects in one answer, which has a bound."""
_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_OK, _CREATED, _NOT_FOUND, _CONFLICT = 200, 201, 404, 409
Manifest = Mapping[str, Any]


class KubernetesCoordinator:
    """Records of one cluster in one namespace. Objects of other clusters there have other names."""

    def __init__(
        self,
        api: JsonApi,
        namespace: str,
        cluster: str,
        *,
        poll_s: float = POLL_S,
        clock: Clock | None = None,
    ) -> None:
        self._api = api
        self._shards = f"/apis/{GROUP}/{VERSION}/namespaces/{quote(namespace)}/shards"
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace)}/leases"
        self._cluster = check_name("cluster", cluster)
        if "." in cluster:  # a name of another cluster and its object could be the same text
            raise ValueError(f"cluster {cluster!r}: its name has no '.'")
        selector = quote(f"{CLUSTER_LABEL}={cluster}")
        source = _Shards(api, f"{self._shards}?labelSelector={selector}", self._name("shard", ""))
        self._watch = SharedWatch(source, Pace(poll_s))
        self._clock = clock or SystemClock()

    async def close(self) -> None:
        await self._watch.close()
        await self._api.close()

    async def read(self, shard: str) -> Versioned | None:
        found = await self._read(self._name("shard", shard))
        return None if found is None else _versioned(found)

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        name = self._name("shard", shard)
        try:
            found = await self._read(name)
        except UnreachableError:
            return Refused.UNKNOWN
        if (None if found is None else _versioned(found).version) != base:
            return Refused.CONFLICT
        drawn = draw_version()
        spec = {"version": drawn, "record": _stored(record)}
        try:
            reply = await (self._create(name, spec) if found is None else self._replace(found, spec))
        except LostReplyError:
            return await changed_or_unknown(partial(self.read, shard), drawn)
        except UnreachableError:
            return Refused.UNKNOWN
        if reply.status in (_OK, _CREATED):
            return drawn
        if reply.status == _CONFLICT or (found is not None and reply.status == _NOT_FOUND):
            return Refused.CONFLICT
        if reply.status < 500:
            raise _refused(name, reply)
        return await changed_or_unknown(partial(self.read, shard), drawn)

    def watch(self, shard: str) -> AsyncGenerator[Versioned, None]:
        return self._watch.watch(check_name("shard", shard))

    async def beat(self, broker: str, boot: int) -> None:
        """Change the broker's Kubernetes Lease. Its times are for people: brokers compare the beat alone."""
        name = self._name("broker", broker)
        now = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="microseconds")
        spec = {
            "holderIdentity": str(boot),
            "leaseDurationSeconds": int(SESSION_S),
            "renewTime": now.replace("+00:00", "Z"),
        }
        labels = {CLUSTER_LABEL: self._cluster, f"{GROUP}/broker": broker[:63].rstrip("-.")}
        lease: dict[str, Any] = {
            "metadata": {"annotations": {BEAT: secrets.token_hex(8)}, "labels": labels},
            "spec": spec,
        }
        path = f"{self._leases}/{name}"
        reply = await self._api.ask("PATCH", path, lease, kind="application/merge-patch+json")
        if reply.status == _NOT_FOUND:
            lease["metadata"] = {**lease["metadata"], "name": name}
            lease |= {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
            reply = await self._api.ask("POST", self._leases, lease)
        if reply.status not in (_OK, _CREATED):
            raise _refused(name, reply)

    async def beats(self) -> Mapping[str, str]:
        selector = quote(f"{CLUSTER_LABEL}={self._cluster}")
        reply = await self._api.ask("GET", f"{self._leases}?labelSelector={selector}")
        if reply.status != _OK:
            raise _refused("leases", reply)
        found = (each["metadata"] for each in reply.value.get("items") or [])
        prefix = self._name("broker", "")
        return {each["name"].removeprefix(prefix): str(each.get("annotations", {}).get(BEAT)) for each in found}

    async def _read(self, name: str) -> Manifest | None:
        reply = await self._api.ask("GET", f"{self._shards}/{name}")
        if reply.status == _NOT_FOUND and reply.value.get("details", {}).get("name") == name:
            return None
        if reply.status != _OK:  # also when the kind is not known
            raise _refused(name, reply)
        return reply.value

    async def _create(self, name: str, spec: Manifest) -> Reply:
        metadata = {"name": name, "labels": {CLUSTER_LABEL: self._cluster}}
        manifest = {"apiVersion": f"{GROUP}/{VERSION}", "kind": "Shard", "metadata": metadata, "spec": spec}
        return await self._api.ask("POST", self._shards, manifest)

    async def _replace(self, found: Manifest, spec: Manifest) -> Reply:
        return await self._api.ask("PUT", f"{self._shards}/{found['metadata']['name']}", {**found, "spec": spec})

    def _name(self, kind: str, name: str) -> str:
        """Return the name of an object."""
        return f"{self._cluster}.{check_name(kind, name) if name else ''}"


class _Shards:
    """The objects of a cluster's shards, chosen by its label. Of each, what is read of it is kept."""

    def __init__(self, api: JsonApi, query: str, prefix: str) -> None:
        self._api = api
        self._query = query
        self._prefix = prefix

    async def listed(self) -> Listing[Manifest]:
        """Return all objects at one revision. Raises UnreachableError, also where that is compacted meanwhile."""
        records: dict[str, Manifest] = {}
        revision, rest = "", ""
        while True:
            reply = await self._api.ask("GET", f"{self._query}&limit={PAGE}{rest}")
            if reply.status != _OK:
                raise _refused("shards", reply)
            match reply.value:
                case {"metadata": {"resourceVersion": str(found), **metadata}, "items": list(items) | (None as items)}:
                    revision = revision or found
                case _:
                    raise _unreadable()
            known = len(records)
            for each in items or ():
                records |= self._stored(each)
            if not metadata.get("continue"):
                return Listing(records, revision)
            before, rest = rest, f"&continue={quote(str(metadata['continue']), safe='')}"
            if rest == before and len(records) == known:
                raise _unreadable()  # the pages would never end

    async def changes(self, revision: str, seconds: float) -> AsyncGenerator[Mapping[str, Manifest | None], None]:
        """Yield what changed after a revision, until the API server ends the watch: also by 410 for a compacted one."""
        query = f"{self._query}&watch=true&resourceVersion={quote(revision)}&timeoutSeconds={ceil(seconds) + 1}"
        lines = self._api.lines("GET", query, None, seconds + 1.0)
        async with aclosing(lines):
            async for line in lines:
                match line:
                    case {"type": "ADDED" | "MODIFIED", "object": found}:
                        yield self._stored(found)
                    case {"type": "DELETED", "object": found}:
                        yield dict.fromkeys(self._stored(found))
                    case _:
                        return

    def parse(self, _shard: str, stored: Manifest) -> Versioned:
        return _versioned(stored)

    def _stored(self, found: object) -> dict[str, Manifest]:
        """Return what is kept of an object; nothing of one whose name is not of the cluster."""
        match found:
            case {"metadata": {"name": str(name)}, **rest}:
                kept = {"metadata": {"name": name}, "spec": rest.get("spec")}
                return {name.removeprefix(self._prefix): kept} if name.startswith(self._prefix) else {}
        raise _unreadable()


def in_pod(cluster: str, environment: Mapping[str, str]) -> KubernetesCoordinator:
    """Return the coordinator of a broker in a pod, with the account of that pod. Raises StorageError outside of one."""
    try:
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment["KUBERNETES_SERVICE_PORT"]
        namespace = (_ACCOUNT / "namespace").read_text().strip()
        tls = ssl.create_default_context(cafile=str(_ACCOUNT / "ca.crt"))
    except (KeyError, OSError) as error:
        way_out = "run the broker in a pod with a service account, or name another coordinator"
        raise StorageError(Thing("coordinator", "kubernetes"), f"is not there: {error}", way_out) from error
    address = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
    api = JsonApi([address], tls=tls, headers=_account_headers, request_s=REQUEST_S)
    return KubernetesCoordinator(api, namespace, cluster)


def _account_headers() -> Mapping[str, str]:
    """Return the account's token, which Kubernetes replaces every hour."""
    return {"Authorization": f"Bearer {(_ACCOUNT / 'token').read_text().strip()}"}


def _versioned(found: Manifest) -> Versioned:
    where = Thing("Shard", str(found.get("metadata", {}).get("name")))
    match found.get("spec"):
        case {"version": str(version), "record": dict(record)}:
            return Versioned(parse_record(json.dumps(_read(record)), where), Version(version))
    raise StorageError(where, "is not a shard's record: it must have a version and a record", "restore a copy")


def _stored(record: ShardRecord) -> dict[str, Any]:
    """Return a record with its numbers of 64 bits as text, because Kubernetes rounds them."""
    value = record.stored()
    leader = {**value["leader"], "boot": str(record.leader.boot)}
    as_text = {**value, "epoch": str(record.epoch), "leader": leader}
    if record.recoveries:
        recoveries = [{**each, "epoch": str(each["epoch"]), "end": str(each["end"])} for each in value["recoveries"]]
        as_text["recoveries"] = recoveries
    return as_text


def _read(stored: Manifest) -> dict[str, Any]:
    leader = stored.get("leader")
    leader = {**leader, "boot": _number(leader.get("boot"))} if isinstance(leader, dict) else leader
    as_numbers = {**stored, "epoch": _number(stored.get("epoch")), "leader": leader}
    if isinstance(stored.get("recoveries"), list):
        as_numbers["recoveries"] = [_read_recovery(each) for each in stored["recoveries"]]
    return as_numbers


def _read_recovery(stored: object) -> object:
    if not isinstance(stored, dict):
        return stored
    return {**stored, "epoch": _number(stored.get("epoch")), "end": _number(stored.get("end"))}


def _number(text: object) -> object:
    return int(text) if isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20 else text


def _refused(name: str, reply: Reply) -> UnreachableError:
    text = str(reply.value.get("message") or "no reason")[:200]
    return UnreachableError(Thing("object of Kubernetes", name), f"was answered with status {reply.status}: {text}")


def _unreadable() -> UnreachableError:
    return UnreachableError(Thing("coordinator", "kubernetes"), "sent an answer that is not a list of objects")
