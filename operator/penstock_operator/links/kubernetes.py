"""Reads and writes objects of Kubernetes by the official client's REST layer: manifests in, manifests out.

Calls block and may come from any thread; each is counted, and an outage is logged once.
"""

import json
from datetime import UTC, datetime
from typing import Any, Final

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from penstock_operator.api.kinds import API_VERSION, KINDS
from penstock_operator.desired.naming import FIELD_MANAGER
from penstock_operator.links.counts import Counts
from penstock_operator.links.outage import Outage

Manifest = dict[str, Any]
Query = list[tuple[str, str]]
REQUEST_SECONDS: Final = 30
# No answer, too many requests, and what proxies and a starting server answer.
_OUTAGE: Final = frozenset({0, 429, 502, 503, 504})
PAGE_SIZE: Final = 2_000
_APPLY = "application/apply-patch+yaml"
_MERGE = "application/merge-patch+json"
_PLURALS: Final = {
    **{(API_VERSION, kind.name): kind.plural for kind in KINDS.values()},
    ("networking.k8s.io/v1", "NetworkPolicy"): "networkpolicies",
    ("storage.k8s.io/v1", "StorageClass"): "storageclasses",
    ("policy/v1", "PodDisruptionBudget"): "poddisruptionbudgets",
}


class ApiError(Exception):
    """The API server refused or did not answer; `code` is 0 when it did not."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def is_outage(self) -> bool:
        """Return whether the API server as a whole could not answer: no object is to blame."""
        return self.code in _OUTAGE


class Kubernetes:
    """Client of one API server."""

    def __init__(self, api: client.ApiClient, counts: Counts, outage: Outage) -> None:
        self._api = api
        self._outage = outage
        self.counts = counts

    def read(self, api_version: str, kind: str, namespace: str | None, name: str) -> Manifest | None:
        """Return an object; None when it or its kind does not exist."""
        self.counts.count_read("get", kind)
        return self._read(_path(api_version, kind, namespace, name))

    def list(self, api_version: str, kind: str, namespace: str | None, selector: str = "") -> list[Manifest]:
        """Return all objects of a kind, as they are at one moment; they come in pages."""
        path, token = _path(api_version, kind, namespace), ""
        items: list[Manifest] = []
        while True:
            self.counts.count_read("list", kind)
            query = [("limit", str(PAGE_SIZE)), ("labelSelector", selector), ("continue", token)]
            found = self._call("GET", path, [each for each in query if each[1]])
            if "items" not in found:  # an answer that is no list must not count as an empty one
                raise ApiError(0, f"the API server answered a list of {kind} without items")
            items += [{"apiVersion": api_version, "kind": kind, **each} for each in found["items"] or []]
            token = found.get("metadata", {}).get("continue", "")
            if not token:
                return items

    def apply(self, manifest: Manifest) -> Manifest:
        """Apply server-side: our fields are ours, the rest is unchanged."""
        path = _path_of(manifest)
        query = [("fieldManager", FIELD_MANAGER), ("force", "true")]
        self.counts.count_write("apply", manifest["kind"])
        return self._call("PATCH", path, query, manifest, _APPLY)

    def create(self, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        path = _path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"))
        self.counts.count_write("create", manifest["kind"])
        return self._call("POST", path, [("fieldManager", FIELD_MANAGER)], manifest)

    def patch(self, manifest: Manifest, change: Manifest, *, part: str = "") -> Manifest:
        """Merge-patch an object that was read; with its resourceVersion in `change` a stale patch is refused."""
        path = _path_of(manifest) + (f"/{part}" if part else "")
        self.counts.count_write(f"patch {part}".strip(), manifest["kind"])
        return self._call("PATCH", path, [("fieldManager", FIELD_MANAGER)], change, _MERGE)

    def delete(self, manifest: Manifest, *, propagation: str = "Background") -> None:
        """Delete exactly this object, not a new one of the same name. A missing one is fine."""
        body: Manifest = {"propagationPolicy": propagation}
        if manifest["metadata"].get("uid"):
            body["preconditions"] = {"uid": manifest["metadata"]["uid"]}
        self.counts.count_write("delete", manifest["kind"])
        try:
            self._call("DELETE", _path_of(manifest), [], body)
        except ApiError as error:
            if error.code not in {404, 409}:
                raise

    def tell(self, about: Manifest, *, is_warning: bool, reason: str, message: str) -> None:
        """Write an Event. A failure is ignored: events inform, conditions count."""
        metadata = about["metadata"]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event: Manifest = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{metadata['name']}.", "namespace": metadata["namespace"]},
            "involvedObject": {
                "apiVersion": about["apiVersion"],
                "kind": about["kind"],
                "name": metadata["name"],
                "namespace": metadata["namespace"],
                "uid": metadata.get("uid"),
            },
            "type": "Warning" if is_warning else "Normal",
            "reason": reason,
            "message": message[:1_024],
            "source": {"component": FIELD_MANAGER},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self.create(event)
        except ApiError:
            return

    def _read(self, path: str) -> Manifest | None:
        try:
            return self._call("GET", path, [])
        except ApiError as error:
            if error.code == 404:
                return None
            raise

    def _call(
        self,
        verb: str,
        path: str,
        query: Query,
        body: Manifest | None = None,
        content_type: str = "application/json",
    ) -> Manifest:
        try:
            found = self._send(verb, path, query, body, content_type)
        except ApiError as error:
            if error.is_outage:
                self._outage.began(str(error))
            else:
                self._outage.ended()
            raise
        self._outage.ended()
        return found

    def _send(self, verb: str, path: str, query: Query, body: Manifest | None, content_type: str) -> Manifest:
        headers = {"Accept": "application/json", "Content-Type": content_type}
        try:
            request = self._api.param_serialize(
                verb, path, query_params=query, header_params=headers, body=body, auth_settings=["BearerToken"]
            )
            response = self._api.call_api(*request, _request_timeout=REQUEST_SECONDS)
            text = response.read()  # type: ignore[no-untyped-call]
        except ApiException as error:
            raise ApiError(int(error.status or 0), _message(error)) from error
        except (OSError, HTTPError) as error:
            raise ApiError(0, f"the API server does not answer: {error}") from error
        if not 200 <= response.status < 300:
            raise ApiError(response.status, _text(text))
        return _decoded(text)


def connect_kubernetes(counts: Counts, outage: Outage) -> Kubernetes:
    """Connect as the pod's service account, or by the kubeconfig outside of a cluster."""
    configuration = client.Configuration()
    try:
        config.load_incluster_config(configuration)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config(client_configuration=configuration)  # type: ignore[no-untyped-call]
    configuration.connection_pool_maxsize = 16
    configuration.retries = False
    return Kubernetes(client.ApiClient(configuration), counts, outage)


def _path_of(manifest: Manifest) -> str:
    metadata = manifest["metadata"]
    return _path(manifest["apiVersion"], manifest["kind"], metadata.get("namespace"), metadata["name"])


def _path(api_version: str, kind: str, namespace: str | None, name: str = "") -> str:
    root = "/api/v1" if api_version == "v1" else f"/apis/{api_version}"
    plural = _PLURALS.get((api_version, kind), f"{kind.lower()}s")
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}{inside}/{plural}" + (f"/{name}" if name else "")


def _decoded(text: bytes) -> Manifest:
    """Return the answer. A proxy's page, or half an answer, is no answer."""
    try:
        found = json.loads(text) if text else {}
    except (ValueError, RecursionError) as error:
        raise ApiError(0, f"the API server's answer cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise ApiError(0, "the API server's answer is not an object")
    return found


def _message(error: ApiException) -> str:
    return _text(error.body) if error.body else str(error.reason)


def _text(body: str | bytes) -> str:
    """Return the message of a Status, or the body if it is none."""
    try:
        found = json.loads(body)
    except ValueError:
        return (body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body))[:500]
    return str(found.get("message", "")) if isinstance(found, dict) else str(found)[:500]
