"""An operator that dies before any of its writes, and the next one: objects are applied and deleted as if once."""

from collections.abc import Callable
from typing import Any

import pytest

from penstock_operator.engine import Key
from penstock_operator.engine.workers import Later
from support.operator_world import OperatorWorld

STEPS_MAX = 12


class DiedError(Exception):
    """The process ended."""


class Death:
    """Ends the process before its n-th write, to Kubernetes or to the broker; once."""

    def __init__(self, world: OperatorWorld, step: int) -> None:
        self._left = step
        self.has_come = False
        assert world.broker is not None
        kubernetes = world.kubernetes
        for name in ("patch", "create"):
            setattr(kubernetes, name, self._before(getattr(kubernetes, name)))
        world.broker.calls = Calls(self._step)

    def _before(self, write: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self._step()
            return write(*arguments, **options)

        return wrapped

    def _step(self) -> None:
        self._left -= 1
        if self._left == 0:
            self.has_come = True
            raise DiedError


class Calls(list[str]):
    """The calls of a broker: each takes a step before it is made."""

    def __init__(self, step: Callable[[], None]) -> None:
        super().__init__()
        self._step = step

    def append(self, call: str) -> None:
        self._step()
        super().append(call)


def settle_through(world: OperatorWorld) -> None:
    """Reconcile; after a death go on as a new process, which knows nothing but what Kubernetes and the broker have."""
    try:
        world.settle()
    except DiedError:
        world.stop()
        world.world.brokers.forget("mq.default.svc")
        world.start()
        world.settle()


def started() -> OperatorWorld:
    world = OperatorWorld()
    world.start_cluster()
    return world


@pytest.mark.parametrize("step", range(1, STEPS_MAX))
def test_a_user_is_made_and_deleted_whenever_the_operator_dies(step: int) -> None:
    world = started()
    assert world.broker is not None
    death = Death(world, step)

    world.apply("User", "web", {"name": "web", "tags": ["monitoring"]})
    settle_through(world)
    assert world.condition("User", "web") == ("True", "Synced")
    assert world.broker.tags["web"] == ("monitoring",)
    assert world.broker.passwords["web"] == "generated"

    world.kubernetes.remove("User", "web")
    settle_through(world)
    assert world.kubernetes.get("User", "web") is None
    assert list(world.broker.passwords) == ["admin"]
    assert death.has_come or step > 6


@pytest.mark.parametrize("step", range(1, STEPS_MAX))
def test_a_different_exchange_stays_whenever_the_operator_dies(step: int) -> None:
    world = started()
    assert world.broker is not None
    exchanges = world.broker.vhosts["/"]["exchanges"]
    Death(world, step)

    world.apply("Exchange", "shop", {"name": "shop", "type": "topic"})
    settle_through(world)
    exchanges["shop"] = ("fanout", True, False, False, {})
    world.add(Key("Exchange", "default", "shop"))
    settle_through(world)
    assert world.condition("Exchange", "shop") == ("False", "Mismatch")

    world.kubernetes.remove("Exchange", "shop")
    settle_through(world)
    assert world.kubernetes.get("Exchange", "shop") is None
    assert exchanges == {"shop": ("fanout", True, False, False, {})}


@pytest.mark.parametrize("step", range(1, STEPS_MAX))
def test_a_queue_is_handed_over_whenever_the_operator_dies(step: int) -> None:
    world = started()
    assert world.broker is not None
    world.apply("Queue", "first", {"name": "orders", "deletionPolicy": "Delete"})
    world.apply("Queue", "second", {"name": "orders"})
    world.settle()
    Death(world, step)

    world.kubernetes.remove("Queue", "first")
    settle_through(world)
    world.look_again()

    assert world.kubernetes.get("Queue", "first") is None
    assert "delete queue orders" not in world.broker.calls
    assert world.condition("Queue", "second") == ("True", "Synced")


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_operator_whose_lease_ran_out_during_a_reconcile_changes_nothing_on_the_broker(is_deleted: bool) -> None:
    world = started()
    assert world.broker is not None
    world.apply("Queue", "orders", {"name": "orders", "deletionPolicy": "Delete"})
    if is_deleted:
        world.settle()
        world.kubernetes.remove("Queue", "orders")
    calls = list(world.broker.calls)
    world.world.acts = lambda: False

    with pytest.raises(Later):
        world.reconcile(Key("Queue", "default", "orders"))

    assert world.broker.calls == calls
