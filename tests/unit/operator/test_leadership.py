"""Which operator acts: the decision as a table, and pods of one release or of two against one Kubernetes."""

from pathlib import Path
from typing import Any, cast

import pytest

from penstock_operator.desired.leadership import LEASE_SECONDS, Claim, Step, binding_of, decide, lease
from penstock_operator.engine.leadership import DEADLINE_SECONDS, Identity, Leadership
from penstock_operator.links import ApiError, Kubernetes
from support.kubernetes_fake import FakeKubernetes, Manifest

ACCESS = Path(__file__).parents[3] / "charts" / "penstock-operator" / "templates" / "access.yaml"
SHOP, STOCK = frozenset({"shop"}), frozenset({"stock"})


def claim(release: str, created: str, holder: str, watches: frozenset[str] = SHOP, *, acting: bool = False) -> Claim:
    return Claim("system", release, created, holder, "now", watches, acting)


MINE = claim("b", "2", "pod")


@pytest.mark.parametrize(
    ("mine", "others", "dead", "has_begun", "step"),
    [
        (None, [], "", False, Step.CREATE),
        (claim("b", "2", "other"), [], "", False, Step.WAIT),
        (claim("b", "2", "other", acting=True), [], "b", False, Step.TAKE),
        (claim("b", "2", ""), [], "", False, Step.TAKE),
        (MINE, [], "", False, Step.MARK),
        (MINE, [MINE], "", False, Step.MARK),
        (MINE, [claim("a", "1", "x")], "", False, Step.RENEW),
        (MINE, [claim("a", "1", "x")], "a", False, Step.MARK),
        (MINE, [claim("a", "1", "")], "", False, Step.MARK),
        (MINE, [claim("a", "1", "x", STOCK, acting=True)], "", False, Step.MARK),
        (MINE, [claim("a", "1", "x", frozenset())], "", False, Step.RENEW),
        (MINE, [claim("c", "3", "x")], "", False, Step.MARK),
        (MINE, [claim("c", "3", "x", acting=True)], "", False, Step.RENEW),
        (claim("b", "2", "pod", acting=True), [claim("c", "3", "x")], "", False, Step.ACT),
        (claim("b", "2", "pod", acting=True), [claim("c", "3", "x", acting=True)], "", False, Step.UNMARK),
        (claim("b", "2", "pod", acting=True), [claim("c", "3", "x", acting=True)], "", True, Step.RENEW),
        (claim("b", "2", "other", acting=True), [], "", True, Step.WAIT),
    ],
)
def test_the_next_step(mine: Claim | None, others: list[Claim], dead: str, has_begun: bool, step: Step) -> None:
    found, reason = decide(
        "pod", mine, others, lambda each: each.holder != "" and each.name != dead, has_begun=has_begun
    )

    assert found is step
    assert bool(reason) == (step in {Step.WAIT, Step.UNMARK} or (step is Step.RENEW and not has_begun))


class Pods:
    """Pods of operators against one Kubernetes, driven by hand; all share one clock."""

    def __init__(self) -> None:
        self.kubernetes = FakeKubernetes()
        self.seconds = 0.0
        self.begun: list[str] = []
        self._renewals = 0

    def start(self, release: str, pod: str, *watches: str) -> Leadership:
        identity = Identity("system", release, pod, watches)
        self.install(release)
        return Leadership(
            cast(Kubernetes, self.kubernetes), identity, lambda: self.begun.append(pod), lambda: self.seconds, self._now
        )

    def install(self, release: str) -> None:
        """Do what the chart does besides: bind the role of a release in the whole cluster."""
        metadata = {"name": f"{release}-discovery-system", "namespace": ""}
        self.kubernetes.add({"kind": "ClusterRoleBinding", "metadata": metadata})

    def _now(self) -> str:
        self._renewals += 1
        return str(self._renewals)

    def run(self, *pods: Leadership, seconds: float = 0.0) -> None:
        """Let pods take turns for some time."""
        until = self.seconds + seconds
        while True:
            for _ in range(6):
                for pod in pods:
                    pod.turn()
            if self.seconds >= until:
                return
            self.seconds += 1


@pytest.fixture
def pods() -> Pods:
    return Pods()


def test_a_pod_alone_acts_at_once(pods: Pods) -> None:
    one = pods.start("operator", "one")
    assert not one.acts

    pods.run(one)

    assert one.acts
    assert (one.reason, pods.begun) == ("", ["one"])


def test_of_two_pods_of_a_release_one_acts_and_the_other_says_why_not(pods: Pods) -> None:
    one, two = pods.start("operator", "one"), pods.start("operator", "two")
    pods.run(one, two, seconds=60)

    assert (one.acts, two.acts) == (True, False)
    assert two.reason == "pod 'one' of this release acts"


def test_a_pod_that_stops_hands_over_at_once(pods: Pods) -> None:
    one, two = pods.start("operator", "one"), pods.start("operator", "two")
    pods.run(one, two)
    one.start()
    one.stop()
    pods.run(two)

    assert (one.acts, two.acts) == (False, True)


def test_a_pod_that_dies_is_followed_after_its_lease(pods: Pods) -> None:
    one, two = pods.start("operator", "one"), pods.start("operator", "two")
    pods.run(one, two)
    pods.run(two, seconds=10)
    assert not two.acts
    assert not one.acts, "it stops acting before the other begins"

    pods.run(two, seconds=10)
    assert two.acts


def test_of_two_releases_that_watch_the_same_namespace_the_later_does_nothing_and_says_so(pods: Pods) -> None:
    first, later = pods.start("first", "one", "shop", "stock"), pods.start("later", "two", "shop")
    pods.run(first)
    pods.run(first, later, seconds=60)

    assert (first.acts, later.acts) == (True, False)
    assert "the release 'first' in namespace 'system' watches the same namespaces" in later.reason


def test_two_releases_that_begin_at_the_same_time_never_both_act(pods: Pods) -> None:
    one, two = pods.start("a", "one"), pods.start("b", "two", "shop")
    for _ in range(30):
        for pod in (one, two):
            pod.turn()
            assert not (one.acts and two.acts)
        pods.seconds += 1

    assert one.acts != two.acts


def test_releases_of_different_namespaces_all_act(pods: Pods) -> None:
    one, two = pods.start("a", "one", "shop"), pods.start("b", "two", "stock")
    pods.run(one, two)

    assert (one.acts, two.acts) == (True, True)


def test_the_later_release_takes_over_when_the_first_is_gone(pods: Pods) -> None:
    first, later = pods.start("first", "one"), pods.start("later", "two")
    pods.run(first)
    pods.run(later, seconds=40)

    assert later.acts
    pods.run(first, later, seconds=40)
    assert (first.acts, later.acts) == (False, True)


def test_a_pod_that_cannot_renew_stops_acting_and_goes_on_when_it_can(pods: Pods) -> None:
    one = pods.start("operator", "one")
    pods.run(one)

    def refuse(*_: object, **__: object) -> None:
        raise ApiError(0, "the API server does not answer")

    read, pods.kubernetes.read = pods.kubernetes.read, refuse  # type: ignore[method-assign]
    pods.run(one, seconds=DEADLINE_SECONDS + 1)
    assert not one.acts
    assert "cannot be renewed" in one.reason

    pods.kubernetes.read = read  # type: ignore[method-assign]
    pods.run(one, seconds=5)
    assert one.acts
    assert pods.begun == ["one", "one"]


def test_a_lease_counts_from_before_its_renewal_was_sent(pods: Pods) -> None:
    """The API server renews at once and answers late; meanwhile another pod finds the Lease unchanged and takes it."""
    one, two = pods.start("operator", "one"), pods.start("operator", "two")
    pods.run(one, two)
    patch = pods.kubernetes.patch

    def answer_late(*about: Any, **more: Any) -> Manifest:
        found = patch(*about, **more)
        pods.kubernetes.patch = patch  # type: ignore[method-assign]
        pods.run(two, seconds=LEASE_SECONDS + 2)
        assert two.acts
        return found

    pods.kubernetes.patch = answer_late  # type: ignore[method-assign]
    one.turn()

    assert not one.acts


def test_objects_that_came_due_during_a_slow_renewal_are_reconciled_after_it(pods: Pods) -> None:
    """A pod that does not act drops the keys that come due, so that it must begin again."""
    one = pods.start("operator", "one")
    pods.run(one)
    patch = pods.kubernetes.patch

    def answer_late(*about: Any, **more: Any) -> Manifest:
        pods.kubernetes.patch = patch  # type: ignore[method-assign]
        pods.seconds += DEADLINE_SECONDS + 1
        assert not one.acts
        return patch(*about, **more)

    pods.kubernetes.patch = answer_late  # type: ignore[method-assign]
    pods.run(one)

    assert one.acts
    assert pods.begun == ["one", "one"]


def forge(pods: Pods, number: int) -> None:
    """Write and renew a Lease as any user with the role `edit` can in its own namespace."""
    forged = lease(Claim("tenant", "operator", holder="mine", is_acting=True), str(number))
    forged["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    pods.kubernetes.add(forged)


def test_a_lease_that_a_tenant_wrote_keeps_no_operator_from_acting(pods: Pods) -> None:
    forge(pods, 0)
    one = pods.start("operator", "one")
    for number in range(30):
        forge(pods, number)
        pods.run(one, seconds=1)

    assert one.acts


def test_an_operator_that_may_not_ask_for_releases_believes_each_lease(pods: Pods) -> None:
    pods.kubernetes.kinds_forbidden.add("ClusterRoleBinding")
    forge(pods, 0)
    one = pods.start("operator", "one")
    pods.run(one)

    assert not one.acts


def test_the_chart_makes_the_binding_that_an_operator_asks_for() -> None:
    text = ACCESS.read_text()
    name = "{{ $name }}-discovery-{{ .Release.Namespace }}"

    (binding,) = [each for each in text.split("---") if "kind: ClusterRoleBinding" in each and name in each]
    assert f"  name: {name}\n  labels" in binding
    assert binding_of(Claim("SPACE", "NAME")) == "NAME-discovery-SPACE"


def test_a_step_that_fails_is_told_and_tried_again(pods: Pods, caplog: pytest.LogCaptureFixture) -> None:
    begun = iter([KeyError("kind"), None])

    def begin() -> None:
        failure = next(begun)
        if failure is not None:
            raise failure

    one = Leadership(
        cast(Kubernetes, pods.kubernetes), Identity("system", "operator", "one", ()), begin, lambda: 0.0, pods._now
    )
    pods.run(one)

    assert one.acts
    assert next(begun, "none") == "none"
    assert "failed; this is a bug" in caplog.text
