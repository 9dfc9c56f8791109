"""The operator's process: `python -m penstock_operator`. Of several, one acts: the one that holds the Lease."""

import asyncio
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kopf
from aiohttp import web

from penstock_operator.api import KINDS
from penstock_operator.engine import Key, Store, World
from penstock_operator.engine.backup import BackupReconciler
from penstock_operator.engine.backup_times import completed_times, following_times, overdue_times
from penstock_operator.engine.census import Census
from penstock_operator.engine.cluster import ClusterReconciler
from penstock_operator.engine.lanes import Lanes
from penstock_operator.engine.leadership import Identity, Leadership
from penstock_operator.engine.schedule import ScheduleReconciler
from penstock_operator.engine.topology import TopologyReconciler
from penstock_operator.handlers import configure, register
from penstock_operator.links import Brokers, connect_kubernetes
from penstock_operator.links.counts import Counts
from penstock_operator.links.outage import Outage
from penstock_operator.settings import Settings, SettingsError, load_settings

_log = logging.getLogger("penstock.operator")
STUCK_SECONDS = 60.0
STOP_SECONDS = 10.0
# The API server accepts manifests that are 10,000 levels deep; each level takes two of Python's at most. 10,000 levels
# take some megabytes of a thread's stack, most of which no thread ever touches.
RECURSION_MAX = 25_000
STACK_BYTES = 32 << 20


class Operator:
    """All parts of the operator, wired together. It lives as long as the process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counts = Counts()
        outage = Outage(time.monotonic)
        for handler in logging.getLogger().handlers:  # kopf logs failed requests by many loggers
            handler.addFilter(outage)
        self._store = Store()
        self._runner: web.AppRunner | None = None
        self._has_begun = False
        self._is_stopped = threading.Event()
        self._lanes = Lanes(self._reconcile, self._counts, settings.workers, _jitter, self._store.broker_of)
        self._world = World(
            connect_kubernetes(self._counts, outage),
            Brokers(time.monotonic),
            self._store,
            self._lanes.add,
            time.monotonic,
            settings.resync_seconds,
            _jitter,
        )
        self._census = Census(self._world, settings.namespaces)
        self._world.operator_namespace = settings.namespace
        self._world.allows_connections = settings.allow_connection_secrets
        self._leadership = self._make_leadership(settings)
        self._world.acts = self._acts
        self._counts.read(self._lanes.overdue, self._not_ready)
        self._cluster = ClusterReconciler(self._world)
        self._topology = TopologyReconciler(self._world, self._census)
        self._backup = BackupReconciler(self._world)
        self._schedule = ScheduleReconciler(self._world)
        self._counts.backups.read_by(
            lambda: completed_times(self._store) if self._acts() else {},
            lambda: following_times(self._store) if self._acts() else {},
            lambda: overdue_times(self._store) if self._acts() else {},
        )

    def run(self) -> None:
        registry = kopf.OperatorRegistry()
        register(registry, self._store, self._lanes.add)
        kopf.on.startup(registry=registry, id="start")(self._start)
        kopf.on.cleanup(registry=registry, id="stop")(self._stop)
        namespaces = self._settings.namespaces
        kopf.run(registry=registry, standalone=True, clusterwide=not namespaces, namespaces=namespaces)

    def _make_leadership(self, settings: Settings) -> Leadership | None:
        """Return the holder of the Lease; None outside of a Kubernetes cluster, where one operator runs by hand."""
        if not (settings.release and settings.pod and settings.namespace):
            return None
        identity = Identity(settings.namespace, settings.release, settings.pod, settings.namespaces)
        return Leadership(self._world.kubernetes, identity, self._add_all, time.monotonic)

    def _acts(self) -> bool:
        acts = self._leadership is None or self._leadership.acts
        self._counts.set_acting(acts)
        return acts

    def _not_ready(self) -> Mapping[tuple[str, str, str], int]:
        """Return how many objects are not ready; of two operators that see them, the one that acts counts them."""
        return self._store.not_ready() if self._acts() else {}

    def _add_all(self) -> None:
        """Reconcile all objects, as those that were seen while another operator acted were left alone."""
        for key in self._store.all():
            self._lanes.add(key)

    def _reconcile(self, key: Key, attempts: int) -> float | None:
        if not self._acts():
            return None
        try:
            return self._reconcile_one(key, attempts)
        finally:
            if not self._has_begun:
                self._has_begun = True
                age = process_age()
                self._counts.tell_first_reconcile(age)
                _log.info("the first reconcile ended %.1f s after the start: %s/%s", age, key.namespace, key.name)

    def _reconcile_one(self, key: Key, attempts: int) -> float | None:
        if KINDS[key.kind].is_topology:
            return self._topology.reconcile(key, attempts)
        if key.kind == "Backup":
            return self._backup.reconcile(key)
        if key.kind == "ScheduledBackup":
            return self._schedule.reconcile(key)
        return self._cluster.reconcile(key)

    async def _start(self, settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        census = threading.Thread(target=self._census.run, args=(self._is_stopped, self._lanes.start), daemon=True)
        census.start()
        if self._leadership is not None:
            self._leadership.start()
        application = web.Application()
        application.router.add_get("/healthz", self._health)
        application.router.add_get("/livez", self._live)
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None, handle_signals=False)
        await self._runner.setup()
        await web.TCPSite(self._runner, port=self._settings.http_port).start()
        _log.info("watching %s", ", ".join(self._settings.namespaces) or "all namespaces")

    async def _stop(self, **_: Any) -> None:
        self._is_stopped.set()
        if self._runner is not None:
            await self._runner.cleanup()
        await asyncio.to_thread(self._lanes.stop, STOP_SECONDS)
        if self._leadership is not None:
            await asyncio.to_thread(self._leadership.stop)

    async def _health(self, _: web.Request) -> web.Response:
        """Report healthy while the kinds can be listed and the workers of Clusters make progress."""
        reason = self._leadership.reason if self._leadership is not None and not self._acts() else ""
        return verdict(self._census.problem or self._stuck(), reason)

    async def _live(self, _: web.Request) -> web.Response:
        """Report alive unless a restart may help: it does not against missing kinds or roles."""
        return verdict(self._stuck())

    def _stuck(self) -> str:
        if not self._lanes.has_started:
            return ""
        idle = time.monotonic() - self._lanes.last_turn
        return f"no turn for {idle:.0f} s" if idle > STUCK_SECONDS else ""

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._counts.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})


def verdict(problem: str, reason: str = "") -> web.Response:
    """Return the answer of a probe; the reason is why this operator does nothing, although it is healthy."""
    if problem:
        return web.json_response({"status": "unavailable", "reason": problem}, status=503)
    return web.json_response({"status": "ok", **({"acts": False, "reason": reason} if reason else {})})


def process_age(proc: Path = Path("/proc")) -> float:
    """Return the seconds since this process began, including the loading of its modules."""
    fields = (proc / "self" / "stat").read_text().rsplit(")", 1)[1].split()
    up = float((proc / "uptime").read_text().split()[0])
    return up - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _jitter() -> float:
    return random.uniform(0.8, 1.2)


def accept_deep_manifests() -> None:
    """Let every thread read what the API server accepts: one object that cannot be read would end a watch for all."""
    sys.setrecursionlimit(RECURSION_MAX)
    threading.stack_size(STACK_BYTES)


def main() -> None:
    accept_deep_manifests()
    try:
        settings = load_settings()
    except SettingsError as error:
        sys.exit(f"penstock-operator: {error}")
    form = "%(asctime)s %(levelname)s %(name)s %(message)s"
    logging.basicConfig(level=settings.log_level.upper(), format=form, stream=sys.stderr)
    logging.getLogger("kopf").setLevel(logging.WARNING)  # it logs every event
    Operator(settings).run()


if __name__ == "__main__":
    main()
