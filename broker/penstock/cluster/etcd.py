"""A coordinator in etcd, version 3, over the JSON form of its API, which each of its servers has.

A shard has two keys that change together: its record with the version, and the version alone, which a transaction can
compare. A revision of etcd is no version, because revisions come back when etcd is restored from a copy. Reads are
linearizable. Beats are keys without a lease, because observers judge them by their own clocks.
"""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Final

from penstock.cluster.api import REQUEST_S, JsonApi, LostReplyError, Reply
from penstock.cluster.coordinator import (
    Refused,
    UnreachableError,
    Version,
    Versioned,
    changed_or_unknown,
    check_name,
    draw_version,
    watch_by_reading,
)
from penstock.cluster.record import ShardRecord, parse_record
from penstock.model.errors import StorageError, Thing

POLL_S: Final = 5.0
"""A record is read as often as this, also while a watch of it says nothing."""
WATCH_S: Final = 3600.0


class EtcdCoordinator:
    """Records below a prefix of keys."""

    def __init__(
        self,
        addresses: Sequence[str],
        prefix: str = "penstock",
        *,
        tls: ssl.SSLContext | None = None,
        poll_s: float = POLL_S,
        request_s: float = REQUEST_S,
    ) -> None:
        self._api = JsonApi(addresses, tls=tls, request_s=request_s)
        self._prefix = prefix.rstrip("/")
        self._poll_s = poll_s

    async def close(self) -> None:
        await self._api.close()

    async def read(self, shard: str) -> Versioned | None:
        key = self._key("shards", shard)
        found = await self._read(key)
        return None if found is None else _versioned(key, found)

    async def change(self, shard: str, base: Version | None, record: ShardRecord) -> Version | Refused:
        key, version_key = self._key("shards", shard), self._key("versions", shard)
        drawn = draw_version()
        value = json.dumps({"version": drawn, "record": record.stored()})
        unchanged: dict[str, object] = {"key": _encode(version_key), "result": "EQUAL", "target": "VALUE"}
        if base is None:
            unchanged |= {"target": "CREATE", "create_revision": "0"}
        else:
            unchanged |= {"value": _encode(base)}
        puts = [_put(key, value), _put(version_key, drawn)]
        await self._check_record(key, base)
        try:
            reply = await self._api.ask("POST", "/v3/kv/txn", {"compare": [unchanged], "success": puts})
        except LostReplyError:
            return await changed_or_unknown(partial(self.read, shard), drawn)
        except UnreachableError:
            return Refused.UNKNOWN
        if reply.status != 200:  # "request timed out" and "leader changed" do not say that it was not made
            return await changed_or_unknown(partial(self.read, shard), drawn)
        return drawn if reply.value.get("succeeded") else Refused.CONFLICT

    def watch(self, shard: str) -> AsyncIterator[Versioned]:
        return watch_by_reading(partial(self.read, shard), _Watch(self._api, self._key("shards", shard)), self._poll_s)

    async def beat(self, broker: str, boot: int) -> None:
        beat = json.dumps({"boot": boot, "beat": draw_version()})
        key = self._key("brokers", broker)
        _checked(await self._api.ask("POST", "/v3/kv/put", {"key": _encode(key), "value": _encode(beat)}))

    async def beats(self) -> Mapping[str, str]:
        first = f"{self._prefix}/brokers/"
        asked = {"key": _encode(first), "range_end": _encode(f"{self._prefix}/brokers0")}  # "0" follows "/"
        found = _checked(await self._api.ask("POST", "/v3/kv/range", asked)).get("kvs", [])
        return {_decode(each["key"]).removeprefix(first): _decode(each["value"]) for each in found}

    async def _read(self, key: str) -> str | None:
        found = _checked(await self._api.ask("POST", "/v3/kv/range", {"key": _encode(key)})).get("kvs", [])
        return _decode(found[0]["value"]) if found else None

    async def _check_record(self, key: str, base: Version | None) -> None:
        """Never replace a record that is corrupt. Raises StorageError."""
        if base is not None:
            try:
                found = await self._read(key)
            except UnreachableError:
                return  # the transaction asks again
            if found is not None:
                _versioned(key, found)

    def _key(self, kind: str, name: str) -> str:
        return f"{self._prefix}/{kind}/{check_name(kind.removesuffix('s'), name)}"


class _Watch:
    """Waits for the next change of a key after the last one that it saw."""

    def __init__(self, api: JsonApi, key: str) -> None:
        self._api = api
        self._key = key
        self._revision = 0

    async def __call__(self) -> None:
        """Return when the key may have changed. A watch that etcd ends says that, too."""
        begin: dict[str, object] = {"key": _encode(self._key)}
        if self._revision:
            begin["start_revision"] = str(self._revision + 1)
        lines = self._api.lines("POST", "/v3/watch", {"create_request": begin}, WATCH_S)
        async with aclosing(lines):
            async for line in lines:
                if self._ends(line):
                    return

    def _ends(self, line: Mapping[str, Any]) -> bool:
        result = line.get("result", {})
        revision = int(result.get("header", {}).get("revision", 0))
        if result.get("canceled") or "error" in line:  # the revision is compacted, for example
            self._revision = 0
            return True
        if result.get("events") or not self._revision:  # a change just before the first watch was perhaps not read
            self._revision = revision
            return True
        return False


def _versioned(key: str, text: str) -> Versioned:
    where = Thing("key of etcd", key)
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    match value:
        case {"version": str(version), "record": dict(record), **rest} if not rest:
            return Versioned(parse_record(json.dumps(record), where), Version(version))
    raise StorageError(where, "is not a shard's record: it must hold a version and a record", "restore a copy")


def _put(key: str, value: str) -> Mapping[str, object]:
    return {"request_put": {"key": _encode(key), "value": _encode(value)}}


def _checked(reply: Reply) -> Mapping[str, Any]:
    if reply.status != 200:
        text = str(reply.value.get("message") or reply.value.get("error") or "no reason")
        raise UnreachableError(Thing("coordinator", "etcd"), f"answered with status {reply.status}: {text[:200]}")
    return reply.value


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()
