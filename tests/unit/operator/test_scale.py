"""The cost of many objects: calls to the broker and to Kubernetes do not grow with their number."""

import base64
import time

import pytest

from penstock_operator.engine import Key
from penstock_operator.engine.users import forget_generated
from support.admin_fake import FakeBroker
from support.operator_world import OperatorWorld

COUNT = 100
MANY = 2_000
CALLS_MAX = 20
RESYNC_SECONDS = 300.0
USERS = [Key("User", "default", f"u{number}") for number in range(COUNT)]
QUEUES = [Key("Queue", "default", f"q{number}") for number in range(COUNT)]


@pytest.fixture(scope="module")
def world() -> OperatorWorld:
    made = OperatorWorld()
    made.start_cluster()
    for key in (*USERS, *QUEUES):
        delete = {"deletionPolicy": "Delete"} if key.kind == "Queue" else {}
        made.apply(key.kind, key.name, {"name": key.name, **delete})
    reconcile_all(made)
    resync(made)
    return made


def reconcile_all(world: OperatorWorld) -> FakeBroker:
    """Reconcile every object once, and count what that takes."""
    assert world.broker is not None
    world.waiting.clear()
    for counted in (world.broker.lists, world.broker.calls, world.broker.tried, world.kubernetes.lists):
        counted.clear()
    world.kubernetes.writes.clear()
    for key in (*USERS, *QUEUES):
        world.reconcile(key)
    return world.broker


def resync(world: OperatorWorld) -> FakeBroker:
    world.seconds += RESYNC_SECONDS
    return reconcile_all(world)


def test_a_resync_asks_for_lists(world: OperatorWorld) -> None:
    broker = resync(world)

    assert len(broker.lists) < 10
    assert broker.calls == []
    assert broker.tried == []
    assert world.kubernetes.writes == []
    assert world.kubernetes.lists == []


@pytest.mark.slow
def test_a_resync_of_thousands_of_objects_takes_a_few_calls(capsys: pytest.CaptureFixture[str]) -> None:
    world = OperatorWorld()
    world.start_cluster()
    password = base64.b64encode(b"imported").decode()
    keys = []
    for number in range(MANY):
        name, imported = f"many{number}", {}
        if number % 2:
            world.kubernetes.add({"kind": "Secret", "metadata": {"name": name}, "data": {"password": password}})
            imported = {"importCredentialsSecret": {"name": name}}
        world.apply("User", name, {"name": name, **imported})
        world.apply("Queue", name, {"name": name})
        keys += [Key("User", "default", name), Key("Queue", "default", name)]
    for _ in range(3):  # they are made, compared with lists from after that, and tried with their passwords
        world.seconds += RESYNC_SECONDS
        for key in keys:
            world.reconcile(key)
    world.seconds += RESYNC_SECONDS
    kubernetes = world.kubernetes
    for calls in (kubernetes.reads, kubernetes.lists, kubernetes.writes):
        calls.clear()
    started = time.process_time()

    world.census.take()
    for key in keys:
        world.reconcile(key)

    worked = time.process_time() - started
    count = len(kubernetes.reads) + len(kubernetes.lists) + len(kubernetes.writes)
    with capsys.disabled():
        print(f"\nfigure: a resync of {MANY:,} users and {MANY:,} queues: {count} calls, {worked:.1f} s of CPU")
    assert kubernetes.writes == []
    assert kubernetes.reads == []
    assert count < CALLS_MAX


def test_a_changed_password_that_a_user_imports_is_followed_at_once(world: OperatorWorld) -> None:
    assert world.broker is not None
    secret = {"kind": "Secret", "metadata": {"name": "own"}, "data": {"password": base64.b64encode(b"one").decode()}}
    world.kubernetes.add(secret)
    world.apply("User", "own", {"name": "own", "importCredentialsSecret": {"name": "own"}})
    world.settle()
    assert world.broker.passwords["own"] == "one"
    assert world.kubernetes.objects["Secret", "default", "own"]["metadata"]["labels"] == {"penstock.dev/cluster": ""}

    world.kubernetes.edit("Secret", "own", {"data": {"password": base64.b64encode(b"two").decode()}})
    world.settle()

    assert world.broker.passwords["own"] == "two"
    world.kubernetes.remove("Secret", "own")
    world.settle()
    assert world.condition("User", "own") == ("False", "SecretNotFound")
    world.kubernetes.remove("User", "own")
    world.settle()


def test_a_secret_that_takes_no_label_is_read_each_time(world: OperatorWorld) -> None:
    assert world.broker is not None
    data = {"password": base64.b64encode(b"one").decode()}
    world.kubernetes.add({"kind": "Secret", "metadata": {"name": "guarded"}, "data": data})
    world.kubernetes.kinds_refused.add("Secret")
    world.apply("User", "guarded", {"name": "guarded", "importCredentialsSecret": {"name": "guarded"}})
    world.settle()
    assert world.condition("User", "guarded") == ("True", "Synced")

    world.kubernetes.edit("Secret", "guarded", {"data": {"password": base64.b64encode(b"two").decode()}})
    world.settle()
    world.seconds += RESYNC_SECONDS
    world.reconcile(Key("User", "default", "guarded"))

    assert world.broker.passwords["guarded"] == "two"
    world.kubernetes.kinds_refused.clear()
    world.kubernetes.remove("User", "guarded")
    world.settle()


def test_objects_of_one_cluster_are_checked_at_the_same_time(world: OperatorWorld) -> None:
    due = set()
    for seconds in (0.0, 10.0, 50.0):
        world.seconds += seconds
        again = world.reconcile(USERS[0])
        assert again is not None
        assert RESYNC_SECONDS / 4 < again <= RESYNC_SECONDS * 5 / 4
        due.add(round((world.seconds + again) % RESYNC_SECONDS, 6))

    assert len(due) == 1


def test_a_generated_password_is_not_tried_and_another_one_is_replaced(world: OperatorWorld) -> None:
    assert world.broker is not None
    world.broker.passwords["u3"] = "another"

    broker = resync(world)

    assert broker.tried == []
    assert broker.calls == ["put user u3", "limit user u3"]
    assert broker.passwords["u3"] == "generated"


def test_passwords_that_were_set_before_a_list_are_not_tried(world: OperatorWorld) -> None:
    """A broker computes a costly digest for each password that is tried: thousands of new users would take minutes."""
    assert world.broker is not None
    data = {"password": base64.b64encode(b"chosen").decode()}
    world.kubernetes.add({"kind": "Secret", "metadata": {"name": "chosen"}, "data": data})
    keys = [Key("User", "default", f"new{number}") for number in range(20)]
    for key in keys:
        world.apply("User", key.name, {"name": key.name, "importCredentialsSecret": {"name": "chosen"}})
    world.broker.tried.clear()
    for key in keys:
        world.seconds += 1.5
        world.reconcile(key)
    world.seconds += RESYNC_SECONDS
    for key in keys:
        world.reconcile(key)

    assert world.broker.tried == ["new19"]
    for key in keys:
        world.kubernetes.remove("User", key.name)
        world.reconcile(key)


def test_a_password_that_was_changed_long_after_we_set_it_is_found(world: OperatorWorld) -> None:
    assert world.broker is not None
    key = Key("User", "default", "late")
    world.apply("User", "late", {"name": "late"})
    world.reconcile(key)
    world.broker.passwords["late"] = "another"
    world.seconds += RESYNC_SECONDS
    world.reconcile(key)

    assert world.broker.passwords["late"] == "generated"
    world.kubernetes.remove("User", "late")
    world.reconcile(key)


def test_only_a_password_that_this_operator_has_generated_gets_a_cheap_digest(world: OperatorWorld) -> None:
    """Users may write their Secrets, and choose passwords that can be guessed."""
    assert world.broker is not None
    world.apply("User", "edits", {"name": "edits"})
    world.settle()
    assert "edits" in world.broker.random

    data = {"password": base64.b64encode(b"a" * 32).decode()}
    world.kubernetes.edit("Secret", "edits-user-credentials", {"data": data})
    world.add(Key("User", "default", "edits"))
    world.settle()

    assert world.broker.passwords["edits"] == "a" * 32
    assert "edits" not in world.broker.random
    world.kubernetes.remove("User", "edits")
    world.settle()
    forget_generated(world.world)
    assert Key("Secret", "default", "edits-user-credentials") not in world.world.generated


def test_an_operator_that_starts_tries_no_generated_password() -> None:
    before = OperatorWorld()
    before.start_cluster()
    for key in USERS[:20]:
        before.apply(key.kind, key.name, {"name": key.name})
    before.settle()
    after = OperatorWorld()
    after.kubernetes, after.broker = before.kubernetes, before.broker
    after.world.kubernetes = before.world.kubernetes
    after.kubernetes.on_change = after.show
    after.start()
    assert after.broker is not None
    after.broker.tried.clear()

    after.settle()

    assert set(after.broker.tried) == {"admin"}
    assert after.condition(*USERS[0][::2]) == ("True", "Synced")


def test_deletions_share_lists_and_ask_once_each(world: OperatorWorld) -> None:
    world.seconds += RESYNC_SECONDS
    for key in (*USERS, *QUEUES):
        world.kubernetes.remove(key.kind, key.name)

    broker = reconcile_all(world)

    assert sorted(world.kubernetes.lists) == ["Cluster", "Queue", "Stream", "User"]
    assert len(broker.lists) < 10
    assert len(broker.calls) == 2 * COUNT
    assert all(world.kubernetes.get(*each) is None for each in ((key.kind, key.name) for key in (*USERS, *QUEUES)))
    assert list(broker.passwords) == ["admin"]


def test_an_object_that_changed_is_checked_against_a_list_from_after_its_change(world: OperatorWorld) -> None:
    """Someone deletes a queue by hand and touches its object to have it back, while a list is still shared."""
    assert world.broker is not None
    world.seconds += RESYNC_SECONDS
    keys = [Key("Queue", "default", f"touched{number}") for number in range(20)]
    for key in keys:
        world.apply("Queue", key.name, {"name": key.name, "deletionPolicy": "Delete"})
        world.reconcile(key)
    del world.broker.vhosts["/"]["queues"]["touched7"]
    world.kubernetes.edit("Queue", "touched7", {"metadata": {"annotations": {"look": "again"}}})

    again = world.reconcile(keys[7])
    assert again is not None
    assert again < 2
    world.seconds += again
    again = world.reconcile(keys[7])

    assert "touched7" in world.broker.vhosts["/"]["queues"]
    assert again is not None
    assert again > RESYNC_SECONDS / 4
    for key in keys:
        world.kubernetes.remove("Queue", key.name)
        world.reconcile(key)
