"""An API server of Kubernetes in a thread: as much of it as a coordinator uses, over HTTP.

It has objects with resource versions, lists by a label or a name in pages, merge patches, conflicts, and watches that
answer 410 for a resource version that is compacted. It checks no schema and no rights.
"""

import asyncio
import copy
import json
from typing import Any, Final

from aiohttp import web

Manifest = dict[str, Any]
HISTORY_MAX: Final = 8
"""Changes that a watch can begin before; older ones are compacted."""


class KubernetesApi:
    """Objects by their paths."""

    def __init__(self) -> None:
        self.objects: dict[str, Manifest] = {}
        self.version = 0
        self._history: list[tuple[int, str, str, Manifest]] = []
        self._changed = asyncio.Condition()
        self._further: dict[str, tuple[str, list[Manifest]]] = {}
        """The rests of lists, with their resource versions."""

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_route("*", "/apis/{path:.*}", self._serve)
        return application

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        is_collection = path.rsplit("/", 1)[-1] in ("shards", "leases")
        if request.method == "GET" and is_collection:
            return await (self._watch(request) if "watch" in request.query else self._list(request))
        if request.method == "GET":
            return web.json_response(self.objects[path]) if path in self.objects else _status(404, path)
        manifest = _rounded(await request.json())
        if request.method == "POST":
            path = f"{path}/{manifest['metadata']['name']}"
            return await self._save(path, manifest, "ADDED") if path not in self.objects else _status(409, path)
        if path not in self.objects:
            return _status(404, path)
        if request.method == "PATCH":
            return await self._save(path, _merged(self.objects[path], manifest), "MODIFIED")
        if manifest["metadata"]["resourceVersion"] != self.objects[path]["metadata"]["resourceVersion"]:
            return _status(409, path)
        return await self._save(path, manifest, "MODIFIED")

    async def _save(self, path: str, manifest: Manifest, event: str) -> web.Response:
        before = self.objects.get(path)
        if before is None or _content(before) != _content(manifest):
            self.version += 1
            metadata = {**manifest["metadata"], "resourceVersion": str(self.version)}
            self.objects[path] = {**manifest, "metadata": metadata}
            self._history.append((self.version, event, path, self.objects[path]))
            async with self._changed:
                self._changed.notify_all()
        return web.json_response(self.objects[path], status=201 if event == "ADDED" else 200)

    async def _list(self, request: web.Request) -> web.Response:
        found = [each for path, each in self.objects.items() if _is_selected(request, path, each)]
        version, found = self._further.pop(request.query.get("continue", ""), (str(self.version), found))
        limit = int(request.query.get("limit", len(found)))
        metadata = {"resourceVersion": version}
        if found[limit:]:
            metadata["continue"] = f"{len(self._further)}/+{self.version}"
            self._further[metadata["continue"]] = (version, found[limit:])
        return web.json_response({"metadata": metadata, "items": found[:limit]})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        after = int(request.query["resourceVersion"])
        if after < self.version - HISTORY_MAX:
            gone = {"kind": "Status", "code": 410, "reason": "Expired"}
            await response.write(json.dumps({"type": "ERROR", "object": gone}).encode() + b"\n")
            return response
        while True:
            for version, event, path, manifest in self._history:
                if version > after and _is_selected(request, path, manifest):
                    await response.write(json.dumps({"type": event, "object": manifest}).encode() + b"\n")
            after = self.version
            async with self._changed:
                await self._changed.wait_for(lambda after=after: self.version > after)  # type: ignore[misc]


def _is_selected(request: web.Request, path: str, manifest: Manifest) -> bool:
    if path.rsplit("/", 1)[0] != request.path:
        return False
    name = request.query.get("fieldSelector", "").removeprefix("metadata.name=")
    label, _, value = request.query.get("labelSelector", "").partition("=")
    metadata = manifest["metadata"]
    return name in ("", metadata["name"]) and (not label or metadata.get("labels", {}).get(label) == value)


def _content(manifest: Manifest) -> Manifest:
    content = copy.deepcopy(manifest)
    content["metadata"].pop("resourceVersion", None)
    return content


def _rounded(value: Any) -> Any:
    """Return a value as Kubernetes stores it: integers that do not fit 64 bits with a sign are floats."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(value) if isinstance(value, int) and value >= 2**63 else value


def _merged(base: Manifest, change: Manifest) -> Manifest:
    merged = dict(base)
    for key, value in change.items():
        merged[key] = _merged(merged.get(key, {}), value) if isinstance(value, dict) else value
    return merged


def _status(code: int, path: str) -> web.Response:
    details = {"name": path.rsplit("/", 1)[-1]}
    return web.json_response({"kind": "Status", "code": code, "details": details}, status=code)
