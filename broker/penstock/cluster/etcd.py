"""A coordinator in etcd, version 3, over the JSON form of its API, which each of its servers has.

A shard has two keys that change together: its record with the version, and the version alone, which a transaction can
compare. A revision of etcd is no version, because revisions come back when etcd is restored from a copy. Reads are
linearizable. The records of all shards are below one prefix: one range lists them, and one watch has their changes.
Beats are keys without a lease, because observers judge them by their own clocks.
"""

import base64
import json
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
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
)
from penstock.cluster.record import ShardRecord, parse_record
from penstock.cluster.watching import Listing, Pace, SharedWatch
from penstock.model.errors import StorageError, Thing

POLL_S: Final = 5.0
"""The records are listed as often as this, also while a watch of them says nothing."""
PAGE: Final = 500
"""Records in one answer, which has a bound."""


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
        self._watch = SharedWatch(_Shards(self._api, f"{self._prefix}/shards/"), Pace(poll_s))

    async def close(self) -> None:
        await self._watch.close()
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

    def watch(self, shard: str) -> AsyncGenerator[Versioned, None]:
        return self._watch.watch(check_name("shard", shard))

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
        """Return the value of a key, still encoded."""
        found = _checked(await self._api.ask("POST", "/v3/kv/range", {"key": _encode(key)})).get("kvs", [])
        return str(found[0].get("value", "")) if found else None

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


class _Shards:
    """The records of all shards, as encoded values below a prefix."""

    def __init__(self, api: JsonApi, prefix: str) -> None:
        self._api = api
        self._prefix = prefix
        self._end = _encode(f"{prefix[:-1]}0")  # "0" follows "/"

    async def listed(self) -> Listing[str]:
        """Return all records at one revision. Raises UnreachableError, also where that is compacted meanwhile."""
        records: dict[str, str] = {}
        asked: dict[str, object] = {"key": _encode(self._prefix), "range_end": self._end, "limit": PAGE}
        while True:
            reply = _checked(await self._api.ask("POST", "/v3/kv/range", asked))
            try:
                found = reply.get("kvs", [])
                records |= [self._stored(each) for each in found]
                asked["revision"] = str(asked.get("revision") or int(reply["header"]["revision"]))
                if not reply.get("more") or not found:
                    return Listing(records, str(asked["revision"]))
                after = base64.b64decode(found[-1]["key"]) + b"\0"
                if after <= base64.b64decode(str(asked["key"])):
                    raise _unreadable()  # the pages would never end
                asked["key"] = base64.b64encode(after).decode()
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise _unreadable() from error

    async def changes(self, revision: str, seconds: float) -> AsyncGenerator[Mapping[str, str | None], None]:
        """Yield what changed after a revision, until etcd ends the watch, as it does for one that is compacted."""
        begin = {"key": _encode(self._prefix), "range_end": self._end, "start_revision": str(int(revision) + 1)}
        lines = self._api.lines("POST", "/v3/watch", {"create_request": begin}, seconds + 1.0)
        async with aclosing(lines):
            async for line in lines:
                match line:
                    case {"result": {"canceled": True}}:
                        return
                    case {"result": {"events": list(events)}}:
                        yield self._changed(events)
                    case {"result": {}}:
                        pass  # the watch begins
                    case _:
                        return

    def parse(self, shard: str, stored: str) -> Versioned:
        return _versioned(self._prefix + shard, stored)

    def _changed(self, events: Sequence[Any]) -> Mapping[str, str | None]:
        try:
            found = [(*self._stored(each["kv"]), each.get("type") == "DELETE") for each in events]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _unreadable() from error
        return {shard: None if is_deleted else value for shard, value, is_deleted in found}

    def _stored(self, found: Mapping[str, Any]) -> tuple[str, str]:
        """Return a shard and its value. A foreign key that is no text makes a name that no shard has."""
        key = base64.b64decode(found["key"]).decode(errors="replace")
        return key.removeprefix(self._prefix), str(found.get("value", ""))


def _versioned(key: str, encoded: str) -> Versioned:
    where = Thing("key of etcd", key)
    try:
        value = json.loads(_decode(encoded))
    except (ValueError, RecursionError):
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


def _unreadable() -> UnreachableError:
    return UnreachableError(Thing("coordinator", "etcd"), "sent an answer that is not one of etcd")


def _encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _decode(text: str) -> str:
    return base64.b64decode(text).decode()
