"""Names of stages whose job is over."""

import pytest

from penstock.model.errors import PreconditionFailedError
from penstock.services import ended_stages
from penstock.services.ended_stages import ENDED_SECONDS, EndedStages
from support.grpc_fakes import FakeClock


def is_refused(ended: EndedStages, user: str, vhost: str, name: str) -> bool:
    try:
        ended.check(user, vhost, name)
    except PreconditionFailedError:
        return True
    return False


def test_a_name_is_refused_for_an_hour_to_the_user_that_ended_it_and_there():
    clock = FakeClock()
    ended = EndedStages(clock)

    ended.add("anna", "/", "job")

    assert is_refused(ended, "anna", "/", "job")
    for user, vhost, name in (("ben", "/", "job"), ("anna", "prod", "job"), ("anna", "/", "other")):
        assert not is_refused(ended, user, vhost, name)
    clock.ms += (ENDED_SECONDS - 1) * 1_000
    assert is_refused(ended, "anna", "/", "job")
    clock.ms += 1_000
    assert not is_refused(ended, "anna", "/", "job")


def test_the_oldest_names_of_a_user_make_room_and_no_names_of_another(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ended_stages, "NAMES_OF_USER_MAX", 2)
    ended = EndedStages(FakeClock())
    ended.add("ben", "/", "own")

    for name in ("a", "b", "c"):
        ended.add("anna", "/", name)

    assert [name for name in "abc" if is_refused(ended, "anna", "/", name)] == ["b", "c"]
    assert is_refused(ended, "ben", "/", "own")
