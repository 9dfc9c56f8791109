"""Settings that change while the broker runs: immediate ones, deferred ones, and reports."""

import pytest

from penstock.node.config import Settings
from penstock.node.reloading import HOT, Reloading
from penstock_operator.api.broker_config import HOT as HOT_FOR_THE_OPERATOR


class World:
    """Values passed to the broker."""

    def __init__(self) -> None:
        self.taken: list[Settings] = []
        self.reloading = Reloading(Settings(), Settings, self.taken.append)


@pytest.fixture
def world() -> World:
    return World()


def test_what_may_change_counts_at_once(world: World) -> None:
    world.reloading.look(Settings(log_level="debug"))

    assert [settings.log_level for settings in world.taken] == ["debug"]


def test_what_waits_for_a_restart_changes_nothing(world: World) -> None:
    world.reloading.look(Settings(message_bytes_max=2048))

    assert world.taken == []


def test_of_both_only_the_one_that_may_counts(world: World) -> None:
    world.reloading.look(Settings(message_bytes_max=2048))
    world.reloading.look(Settings(message_bytes_max=2048, drain_seconds=1))

    (taken,) = world.taken
    assert taken == Settings(drain_seconds=1)


def test_what_was_seen_is_no_news(world: World) -> None:
    world.reloading.look(Settings(log_level="debug"))
    world.reloading.look(Settings(log_level="debug"))
    world.reloading.look(None)

    assert len(world.taken) == 1


def test_what_was_taken_back_counts_again(world: World) -> None:
    world.reloading.look(Settings(log_level="debug"))
    world.reloading.look(Settings())

    assert [settings.log_level for settings in world.taken] == ["debug", "info"]


def test_the_operator_restarts_the_broker_for_all_others_and_no_more() -> None:
    assert HOT == HOT_FOR_THE_OPERATOR
