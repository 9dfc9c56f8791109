"""Limits of users on the disk, and the limits passed to the listener."""

import asyncio
import json

import pytest

from penstock.model.errors import StorageError
from penstock.model.limits import NO_LIMITS, Limits
from penstock.services.quotas import Quotas
from penstock.services.user_limits import LimitsOfUsers


def test_limits_are_on_the_disk_when_setting_them_returns(tmp_path):
    path = tmp_path / "user_limits.json"
    limits = LimitsOfUsers.open(path)

    asyncio.run(limits.set("anna", Limits(publish_rate=5, streams_max=2)))

    assert json.loads(path.read_text()) == {"anna": {"publish-rate": 5, "max-channels": 2}}
    assert LimitsOfUsers.open(path).find("anna") == Limits(publish_rate=5, streams_max=2)


def test_a_user_without_limits_is_not_kept(tmp_path):
    path = tmp_path / "user_limits.json"
    limits = LimitsOfUsers.open(path)
    asyncio.run(limits.set("anna", Limits(publish_rate=5)))

    asyncio.run(limits.forget("anna"))

    assert json.loads(path.read_text()) == {}
    assert limits.find("anna") == NO_LIMITS


def test_limits_that_were_being_written_when_their_call_was_cancelled_are_written(tmp_path):
    """The file had limits that the broker did not know, and a stop released the directory before they were written."""
    path = tmp_path / "user_limits.json"

    async def scenario():
        limits = LimitsOfUsers.open(path)
        calls = [asyncio.create_task(limits.set(name, Limits(publish_rate=5))) for name in ("anna", "bob")]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await limits.drained()
        assert all(call.cancelled() for call in calls)
        return limits

    limits = asyncio.run(scenario())

    assert json.loads(path.read_text()) == {"anna": {"publish-rate": 5}, "bob": {"publish-rate": 5}}
    assert list(limits.all()) == ["anna", "bob"]


def test_limits_that_cannot_be_written_are_refused(tmp_path):
    limits = LimitsOfUsers.open(tmp_path / "gone" / "user_limits.json")

    with pytest.raises(StorageError, match="cannot be written"):
        asyncio.run(limits.set("anna", Limits(publish_rate=5)))

    assert limits.find("anna") == NO_LIMITS


@pytest.mark.parametrize(
    "content",
    [[], {"a": 1}, *({"a": bad} for bad in ({"max-shoes": 1}, {"publish-rate": 0}, {"publish-rate": True}))],
)
def test_a_file_that_cannot_be_honoured_is_refused(tmp_path, content):
    path = tmp_path / "user_limits.json"
    path.write_text(json.dumps(content))

    with pytest.raises(StorageError):
        LimitsOfUsers.open(path)


class FakeVhost:
    def __init__(self, name):
        self.name = name
        self.limits = NO_LIMITS


class FakeListener:
    def __init__(self):
        self.told = []

    def set_quota(self, name, is_user, limits):
        self.told.append((name, is_user, limits))


def test_the_listener_is_told_what_has_changed_and_nothing_else(tmp_path):
    users, vhost, listener = LimitsOfUsers.open(tmp_path / "limits.json"), FakeVhost("/"), FakeListener()
    vhosts = {"/": vhost, "other": FakeVhost("other")}
    quotas = Quotas(listener, lambda: vhosts, users)  # type: ignore[arg-type, return-value]

    vhost.limits = Limits(queues_max=1, publish_rate=7)
    quotas.apply()
    asyncio.run(users.set("anna", Limits(connections_max=1, streams_max=2)))
    quotas.apply()
    quotas.apply()
    del vhosts["/"]
    quotas.apply()

    assert listener.told == [
        ("/", False, {"publish_rate": 7}),
        ("anna", True, {"streams_max": 2}),
        ("/", False, {}),
    ]
