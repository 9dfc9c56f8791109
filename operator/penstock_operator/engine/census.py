"""Lists the watched kinds, so that the store is complete before anything is decided by what it lacks.

Nothing is reconciled before all kinds were listed once. Nothing is deleted on a broker before its kind and the Clusters
were listed after the deletion was seen: one list serves all deletions that came before it. An object that is in the
store and not in a list went while no watch looked; it is dropped, and loses its claims. Secrets with our label are
listed as well, so that a resync of thousands of users reads none of theirs by itself.
"""

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from penstock_operator.api import GROUP, KINDS, VERSION
from penstock_operator.desired.naming import CLUSTER_LABEL
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.connection import forget_unused
from penstock_operator.engine.intake import gone, seen
from penstock_operator.engine.users import forget_generated
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError
from penstock_operator.links.certificates import remove_unused_files

Manifest = dict[str, Any]
RETRY_SECONDS: Final = 5.0
FORBIDDEN: Final = 403
# Codes of a kind that is not installed and of a missing role.
LACKING: Final = frozenset({FORBIDDEN, 404})
API_VERSION: Final = f"{GROUP}/{VERSION}"
_log = logging.getLogger("penstock.operator")


class Census:
    """Thread-safe. `problem` is why the kinds cannot be listed: not yet, or for lack of a kind or a role."""

    def __init__(self, world: World, namespaces: tuple[str, ...] = ()) -> None:
        self._world = world
        self._namespaces = namespaces
        self._locks = {kind: threading.Lock() for kind in ("Namespace", "Secret", *KINDS)}
        # Kind -> the store's moment at which its last listing began.
        self._began: dict[str, int] = {}
        # Kind -> the namespaces that its last listing could not see, and why.
        self._unlisted: dict[str, dict[str, str]] = {}
        self.problem = "the kinds of penstock.dev have not been listed yet"

    def take(self) -> None:
        """List all kinds. Raises ApiError, also when a kind does not exist."""
        now = self._world.store.tick()
        try:
            for kind in self._locks:
                self.freshen(kind, now)
        except ApiError as error:
            if error.code in LACKING or self.problem:  # an API server that is away for a while is no problem of ours
                self.problem = f"{_plural(kind)} cannot be listed: {error}"
            raise
        self.problem = self._partial()

    def unlisted(self, kind: str) -> frozenset[str]:
        """Return the watched namespaces whose objects of a kind are not known: their role is missing."""
        return frozenset(self._unlisted.get(kind, ()))

    def _partial(self) -> str:
        return "; ".join(
            f"{_plural(kind)} in namespace '{namespace}' cannot be listed: {why}"
            for kind, places in self._unlisted.items()
            for namespace, why in places.items()
        )

    def freshen(self, kind: str, moment: int) -> None:
        """List a kind, unless a listing of it began after this moment of the store."""
        with self._locks[kind]:
            if self._began.get(kind, -1) >= moment:
                return
            began = self._world.store.tick()
            self._list(kind)
            self._began[kind] = began

    def run(self, is_stopped: threading.Event, start: Callable[[], None]) -> None:
        """Take a census until it is stopped: at once, and with every resync. After the first complete one, `start`."""
        has_started = False
        while not is_stopped.is_set():
            wait = self._world.resync_seconds
            try:
                self.take()
            except ApiError as error:
                _log.warning("the kinds cannot be listed: %s", error)
                wait = RETRY_SECONDS
            except Exception:  # noqa: BLE001 - without this thread no census would be taken any more
                _log.exception("a census failed; this is a bug, please report it")
                wait = RETRY_SECONDS
            else:
                forget_unused(self._world)
                forget_generated(self._world)
                remove_unused_files(datetime.now(UTC))
                if not has_started:
                    has_started = True
                    start()
            is_stopped.wait(wait)

    def _list(self, kind: str) -> None:
        store = self._world.store
        before = store.uids(kind)
        listed: dict[Key, str | None] = {}
        found, unlisted = self._found(kind)
        for manifest in found:
            metadata = manifest["metadata"]
            listed[Key(kind, metadata.get("namespace", ""), metadata["name"])] = metadata.get("uid")
            self._add(seen(store, manifest))
        for key, uid in before.items():
            if listed.get(key) != uid and key.namespace not in unlisted:
                self._add(gone(store, key, uid))
        self._unlisted[kind] = unlisted

    def _found(self, kind: str) -> tuple[list[Manifest], dict[str, str]]:
        """Return the objects, and the namespaces without the operator's role. One of these must not stop the others."""
        kubernetes = self._world.kubernetes
        if kind == "Namespace":
            return self._found_namespaces(), {}
        places: tuple[str | None, ...] = self._namespaces or (None,)
        version, selector = ("v1", CLUSTER_LABEL) if kind == "Secret" else (API_VERSION, "")
        found: list[Manifest] = []
        unlisted: dict[str, str] = {}
        for place in places:
            try:
                found += kubernetes.list(version, kind, place, selector)
            except ApiError as error:
                if error.code != FORBIDDEN or place is None or len(unlisted) == len(places) - 1:
                    raise
                unlisted[place] = str(error)
        return found, {place: why for place, why in unlisted.items() if self._exists(place)}

    def _exists(self, namespace: str) -> bool:
        """Return whether a namespace exists: a role goes with its namespace, and so do all objects."""
        try:
            return self._world.kubernetes.read("v1", "Namespace", None, namespace) is not None
        except ApiError as error:
            if error.code == FORBIDDEN:
                return True
            raise

    def _found_namespaces(self) -> list[Manifest]:
        """Return the namespaces; none where they may not be listed: then each is read when its labels matter."""
        try:
            return self._world.kubernetes.list("v1", "Namespace", None)
        except ApiError as error:
            if error.code == FORBIDDEN:
                return []
            raise

    def _add(self, keys: list[Key]) -> None:
        for key in keys:
            if key.kind in KINDS:
                self._world.add(key, 0.0)


def _plural(kind: str) -> str:
    return KINDS[kind].plural if kind in KINDS else f"{kind.lower()}s"
