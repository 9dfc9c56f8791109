"""Holds and renews the Lease of this release, and says whether this pod acts.

A Lease counts as live until its time of renewal has not changed for a while on this machine's own clock, so clocks of
different nodes are never compared. A pod that could not renew its Lease stops acting well before others take it. Only
Leases of installed releases count.
"""

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from penstock_operator.desired.leadership import (
    LEASE_SECONDS,
    SELECTOR,
    Claim,
    Step,
    binding_of,
    claim_of,
    decide,
    held,
    lease,
)
from penstock_operator.links import ApiError, Kubernetes

Manifest = dict[str, Any]
RENEW_SECONDS: Final = 4.0
RETRY_SECONDS: Final = 2.0
# Without a renewal for this long, nothing is done any more.
DEADLINE_SECONDS: Final = 10.0
# Whether a release is installed is asked again after this time.
INSTALLED_SECONDS: Final = 60.0
FORBIDDEN: Final = 403
CONFLICT: Final = 409
LEASES: Final = "coordination.k8s.io/v1", "Lease"
BINDINGS: Final = "rbac.authorization.k8s.io/v1", "ClusterRoleBinding"

_log = logging.getLogger("penstock.operator")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@dataclass(frozen=True, slots=True)
class Identity:
    """This pod, its release, and the namespaces that it watches; none means all."""

    namespace: str
    release: str
    pod: str
    watches: tuple[str, ...] = ()


class Leadership:
    """One thread renews; any thread may ask `acts`. `begin` is called each time that this pod begins to act."""

    def __init__(
        self,
        kubernetes: Kubernetes,
        identity: Identity,
        begin: Callable[[], None],
        clock: Callable[[], float],
        now: Callable[[], str] = _now,
    ) -> None:
        self._kubernetes = kubernetes
        self._identity = identity
        self._begin = begin
        self._clock = clock
        self._now = now
        self._seen: dict[tuple[str, str], tuple[str, float]] = {}
        self._installed: dict[tuple[str, str], tuple[bool, float]] = {}
        self._renewed_at: float | None = None
        self._has_begun = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leadership", daemon=True)
        self.reason = "the Lease is not held yet"
        """Why this pod does not act; empty while it does."""

    @property
    def acts(self) -> bool:
        """Return whether this pod may act now."""
        renewed = self._renewed_at
        return self._has_begun and renewed is not None and self._clock() - renewed < DEADLINE_SECONDS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and release the Lease, so that the next pod need not wait for its end."""
        self._stopped.set()
        self._thread.join(RETRY_SECONDS)
        was_holder, self._has_begun = self._has_begun, False
        if was_holder:
            try:
                mine = self._read()
                if mine is not None and claim_of(mine).holder == self._identity.pod:
                    self._write(mine, replace(claim_of(mine), holder="", is_acting=False))
            except ApiError as error:
                _log.warning("the Lease could not be released; the next pod waits for its end: %s", error)

    def turn(self) -> float:
        """Do one step; return the seconds until the next."""
        try:
            return self._step()
        except ApiError as error:
            if error.code != CONFLICT:
                self._say(f"the Lease '{self._identity.release}' cannot be renewed: {error}")
            return RETRY_SECONDS
        except Exception:  # noqa: BLE001 - without this thread the pod would never act again, and nothing would say why
            _log.exception("a step with the Lease '%s' failed; this is a bug, please report it", self._identity.release)
            self._has_begun = False
            return RETRY_SECONDS

    def _run(self) -> None:
        delay = 0.0
        while not self._stopped.wait(delay):
            delay = self.turn()

    def _step(self) -> float:
        if self._has_begun and not self.acts:
            self._has_begun = False  # too long without a renewal: another release may act
        manifest = self._read()
        mine = None if manifest is None else claim_of(manifest)
        others = [] if self._has_begun else self._others()
        step, reason = decide(self._identity.pod, mine, others, self._is_live, has_begun=self._has_begun)
        if step is not Step.ACT and not (step is Step.RENEW and self._has_begun):
            self._has_begun = False
        if reason:
            self._say(reason)
        wanted = Claim(
            self._identity.namespace,
            self._identity.release,
            holder=self._identity.pod,
            watches=frozenset(self._identity.watches),
            is_acting=step in {Step.MARK, Step.ACT} or self._has_begun,
        )
        if step is Step.WAIT:
            return RETRY_SECONDS
        if step is Step.CREATE or manifest is None:
            self._kubernetes.create(lease(wanted, self._now()))
            return 0.0
        if not self._renew(manifest, wanted):
            return 0.0
        if step is Step.ACT:
            self._has_begun = True
            self._say("")
            self._begin()
        return 0.0 if step in {Step.TAKE, Step.MARK} else RENEW_SECONDS

    def _renew(self, manifest: Manifest, wanted: Claim) -> bool:
        """Renew the Lease; return False if that took so long that this pod stopped acting, and must begin again.

        The renewal counts from before it was sent: others see it from the moment that the API server wrote it. What
        came due while this pod did not act was dropped.
        """
        sent = self._clock()
        self._write(manifest, wanted)
        has_lapsed = self._has_begun and not self.acts
        if has_lapsed:
            self._has_begun = False
        self._renewed_at = sent
        return not has_lapsed

    def _read(self) -> Manifest | None:
        found = self._kubernetes.read(*LEASES, self._identity.namespace, self._identity.release)
        return None if found is None else {**found, "apiVersion": LEASES[0], "kind": LEASES[1]}

    def _others(self) -> list[Claim]:
        found = [claim_of(each) for each in self._kubernetes.list(*LEASES, None, SELECTOR)]
        places = {each.place for each in found}
        self._seen = {place: seen for place, seen in self._seen.items() if place in places}
        self._installed = {place: known for place, known in self._installed.items() if place in places}
        return found

    def _is_installed(self, claim: Claim) -> bool:
        """Return whether a Lease is that of a release, whose chart binds its role in the whole cluster.

        Users may write Leases in their own namespaces, and would keep this operator from acting; they may bind nothing
        there. The answer is kept for a while. An operator that may not ask, by an older chart, believes each Lease.
        """
        known, at = self._installed.get(claim.place, (True, -INSTALLED_SECONDS))
        if self._clock() - at < INSTALLED_SECONDS:
            return known
        try:
            known = self._kubernetes.read(*BINDINGS, None, binding_of(claim)) is not None
        except ApiError as error:
            if error.code != FORBIDDEN:
                raise
            known = True
        self._installed[claim.place] = known, self._clock()
        return known

    def _write(self, manifest: Manifest, wanted: Claim) -> None:
        change = held(wanted, self._now())
        change["metadata"]["resourceVersion"] = manifest["metadata"]["resourceVersion"]
        self._kubernetes.patch(manifest, change)

    def _is_live(self, claim: Claim) -> bool:
        """Return whether a Lease is held, and its time of renewal has changed lately."""
        is_own = claim.place == (self._identity.namespace, self._identity.release)
        if not claim.holder or not (is_own or self._is_installed(claim)):
            return False
        renewed, since = self._seen.get(claim.place, ("", 0.0))
        if renewed != claim.renewed:
            since = self._clock()
            self._seen[claim.place] = claim.renewed, since
        return self._clock() - since < LEASE_SECONDS

    def _say(self, reason: str) -> None:
        if reason and reason != self.reason:
            _log.warning("this operator does nothing: %s", reason)
        elif not reason:
            _log.info("this operator acts: %s", ", ".join(self._identity.watches) or "all namespaces")
        self.reason = reason
