"""The owner of users: log-ins, and that a change takes effect once it is on the disk."""

import asyncio
import base64
import hashlib
import json
import os
import threading
from dataclasses import replace
from typing import Any, cast

import pytest

from penstock.identity import Permission, TopicPermission
from penstock.kit.background import NICE_STEPS
from penstock.model.errors import InvalidArgumentError, NotAuthenticatedError, NotFoundError, StorageError
from penstock.model.records import Access
from penstock.services.accounts import Accounts
from penstock.storage import read_users

ALL = Permission.compile(".*", ".*", ".*")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "users.json"


def play(path, scenario):
    async def run():
        accounts = Accounts.open(path, "guest", "guest")
        try:
            return await scenario(accounts)
        finally:
            await accounts.settled()
            accounts.close()

    return asyncio.run(run())


def test_a_new_broker_has_the_default_user_with_every_permission(path):
    async def scenario(accounts):
        user = await accounts.log_in("guest", "guest")
        assert user.is_administrator
        assert user.allowance("/").allows(Access.WRITE, "anything")
        assert user.allowance("other") is None

    play(path, scenario)
    assert [user.name for user in (read_users(path) or [])] == ["guest"]


def test_a_random_password_keeps_its_cheap_digest_over_log_ins_and_starts(path):
    password = "0123456789abcdefghijklmnopqrstuv"

    async def scenario(accounts):
        await accounts.put_user("robot", password, [], is_random=True)
        await accounts.log_in("robot", password)
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("robot", password[1:])

    async def later(accounts):
        user = await accounts.log_in("robot", password)
        assert user.hashing_algorithm == "penstock_random_sha256"
        await accounts.put_user("robot", "chosen", None)
        assert (await accounts.log_in("robot", "chosen")).hashing_algorithm == "argon2id"

    play(path, scenario)
    play(path, later)


def test_a_wrong_password_and_an_unknown_user_look_the_same(path):
    async def scenario(accounts):
        await accounts.put_user("anna", "secret", [])
        texts = []
        for name in ("anna", "otto"):
            with pytest.raises(NotAuthenticatedError) as caught:
                await accounts.log_in(name, "wrong")
            texts.append(str(caught.value).replace(name, "NAME"))
        assert texts[0] == texts[1]

    play(path, scenario)


def test_an_old_password_is_wrong_as_soon_as_there_is_a_new_one(path):
    async def scenario(accounts):
        assert await accounts.put_user("anna", "one", [])
        await accounts.log_in("anna", "one")
        assert not await accounts.put_user("anna", "two", [])
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("anna", "one")
        await accounts.log_in("anna", "two")
        await accounts.put_user("anna", "", [])
        for password in ("two", ""):
            with pytest.raises(NotAuthenticatedError):
                await accounts.log_in("anna", password)

    play(path, scenario)


def test_of_two_calls_that_add_a_user_at_once_one_is_told_that_it_is_new(path):
    """Both were."""

    async def scenario(accounts):
        added = await asyncio.gather(*(accounts.put_user("anna", password, []) for password in ("one", "two")))
        assert sorted(added) == [False, True]

    play(path, scenario)


def test_a_permission_that_is_decided_after_its_vhost_was_deleted_is_refused(path):
    """It stayed, and a new vhost of that name inherited it."""

    async def scenario(accounts):
        vhosts = {"/", "blue"}
        accounts.know_vhosts(vhosts.__contains__)
        await accounts.put_user("anna", "one", [])
        everything = Permission.compile(".*", ".*", ".*")
        await accounts.set_permission("anna", "blue", everything)
        vhosts.remove("blue")  # as a deletion does before it deletes the permissions
        changes = [
            accounts.forget_vhost("blue"),
            accounts.set_permission("anna", "blue", everything),
            accounts.set_topic("anna", "blue", "x", TopicPermission.compile("anna", "blue", "a", "b")),
            accounts.change(lambda users: users.set_permission("anna", "blue", everything)),
            accounts.set_permission("anna", "/", everything),
        ]
        outcomes = await asyncio.gather(*changes, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [type(None), *[NotFoundError] * 3, type(None)]
        (anna,) = (user for user in accounts.users() if user.name == "anna")
        assert (list(anna.permissions), list(anna.topics)) == (["/"], [])

    play(path, scenario)


def test_a_deleted_user_is_out_at_once(path):
    async def scenario(accounts):
        await accounts.put_user("anna", "one", [])
        await accounts.log_in("anna", "one")
        await accounts.delete_user("anna")
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("anna", "one")

    play(path, scenario)


def test_many_log_ins_at_once_are_one_check(path):
    async def scenario(accounts):
        users = await asyncio.gather(*(accounts.log_in("guest", "guest") for _ in range(500)))
        assert len(users) == 500
        assert accounts.passwords.check_count == 1

    play(path, scenario)


def test_changes_at_once_are_all_on_the_disk(path):
    async def scenario(accounts):
        await asyncio.gather(*(accounts.put_user(f"u{number}", "", []) for number in range(50)))
        await accounts.set_permission("u7", "/", ALL)

    play(path, scenario)
    found = {user.name: user for user in (read_users(path) or [])}
    assert len(found) == 51
    assert list(found["u7"].permissions) == ["/"]
    assert found["u7"].hashing_algorithm == "argon2id"


def test_one_refused_change_does_not_hold_up_the_others(path):
    async def scenario(accounts):
        results = await asyncio.gather(
            accounts.put_user("good", "", []), accounts.put_user("b:d", "", []), return_exceptions=True
        )
        assert results[0] is True
        assert isinstance(results[1], InvalidArgumentError)

    play(path, scenario)
    assert [user.name for user in (read_users(path) or [])] == ["guest", "good"]


def test_a_change_that_cannot_be_written_does_not_count(path):
    async def scenario(accounts):
        (path.parent / "users.json.new").mkdir()
        with pytest.raises(StorageError):
            await accounts.put_user("anna", "", [])
        assert [user.name for user in accounts.users()] == ["guest"]

    play(path, scenario)


def test_forgetting_a_vhost_clears_the_permissions_in_it(path):
    async def scenario(accounts):
        await accounts.set_permission("guest", "blue", ALL)
        await accounts.forget_vhost("blue")
        await accounts.forget_vhost("never-there")
        assert list(accounts.users()[0].permissions) == ["/"]

    play(path, scenario)


def test_what_people_wrote_wrong_into_the_file_is_named(path):
    path.write_text('[{"name": "anna", "permissions": {"/": {"configure": "(", "write": "", "read": ""}}}]')

    with pytest.raises(StorageError, match="'anna'"):
        Accounts.open(path, "guest", "guest")


def test_another_broker_s_digest_becomes_ours_at_the_first_good_log_in(path):
    digest = base64.b64encode(b"salt" + hashlib.md5(b"saltsecret").digest()).decode()
    algorithm = "rabbit_password_hashing_md5"

    async def scenario(accounts):
        await accounts.change(lambda users: users.put("anna", [], digest, algorithm))
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("anna", "wrong")
        assert (read_users(path) or [])[1].password_hash == digest

        users = await asyncio.gather(*(accounts.log_in("anna", "secret") for _ in range(50)))

        assert {user.name for user in users} == {"anna"}
        checks = accounts.passwords.check_count
        await accounts.log_in("anna", "secret")
        assert accounts.passwords.check_count == checks, "the new digest is remembered"

    play(path, scenario)
    assert (read_users(path) or [])[1].hashing_algorithm == "argon2id"
    assert (read_users(path) or [])[1].password_hash.startswith("$argon2id$")


def test_a_digest_that_cannot_be_renewed_still_lets_in(path):
    digest = base64.b64encode(b"salt" + hashlib.sha256(b"saltsecret").digest()).decode()

    async def scenario(accounts):
        await accounts.change(lambda users: users.put("anna", [], digest, "rabbit_password_hashing_sha256"))
        (path.parent / "users.json.new").mkdir()
        assert (await accounts.log_in("anna", "secret")).name == "anna"

    play(path, scenario)
    assert (read_users(path) or [])[1].password_hash == digest


def test_an_unknown_user_is_checked_as_one_of_those_that_there_are(path, monkeypatch):
    """Users with another broker's digests took another time than unknown ones, which revealed that they exist."""
    algorithms = []

    def verify(_, algorithm, __):
        algorithms.append(algorithm)
        return False

    monkeypatch.setattr("penstock.services.password_checks.verify_password", verify)

    async def scenario(accounts):
        for number in range(3):
            digest = "$2a$04$" + "a" * 53
            await accounts.change(lambda users, n=number, d=digest: users.put(f"u{n}", [], d, "lavinmq_bcrypt"))
        for number in range(64):
            with pytest.raises(NotAuthenticatedError):
                await accounts.log_in(f"unknown{number}", "x")

    play(path, scenario)
    assert set(algorithms) == {"lavinmq_bcrypt", "argon2id"}


def test_a_start_keeps_a_user_whose_digest_is_above_the_bounds(path):
    bcrypt = "$2a$16$" + "a" * 53
    path.write_text(json.dumps([{"name": "anna", "password_hash": bcrypt, "hashing_algorithm": "lavinmq_bcrypt"}]))

    async def scenario(accounts):
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("anna", "secret")
        await accounts.put_user("anna", None, ["monitoring"])
        await accounts.put_user("anna", "secret", [])
        assert (await accounts.log_in("anna", "secret")).name == "anna"

    play(path, scenario)


def test_passwords_are_checked_by_threads_that_give_way_to_messages(path, monkeypatch):
    nice = []

    def verify(*_: object) -> bool:
        nice.append(os.getpriority(os.PRIO_PROCESS, 0))
        return False

    monkeypatch.setattr("penstock.services.password_checks.verify_password", verify)

    async def scenario(accounts):
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("guest", "wrong")

    play(path, scenario)
    assert nice == [min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICE_STEPS)]


class Freed:
    """Stands for a compiled pattern, and records where it is freed."""

    def __init__(self, freed_on: list[int]) -> None:
        self._freed_on = freed_on

    def __del__(self) -> None:
        self._freed_on.append(threading.get_ident())


@pytest.mark.parametrize("deletion", ["user", "vhost", "topics"])
def test_thousands_of_patterns_are_freed_on_a_thread(path, deletion):
    """The loop freed them all at once: other clients waited for half a second."""
    freed_on: list[int] = []

    async def scenario(accounts):
        await accounts.put_user("anna", "secret", [])
        topics = {
            f"exchange-{number}": TopicPermission("a", "a", ("anna", "/"), {"a": cast("Any", Freed(freed_on))})
            for number in range(1_000)
        }
        await accounts.change(lambda users: users.merge([replace(users.get("anna"), topics={"/": dict(topics)})]))
        topics.clear()
        with pytest.raises(NotAuthenticatedError):
            await accounts.log_in("unknown", "secret")
        if deletion == "user":
            await accounts.delete_user("anna")
        elif deletion == "vhost":
            await accounts.forget_vhost("/")
        else:
            await accounts.delete_topics("anna", "/", None)
        await accounts.settled()

    play(path, scenario)
    assert len(freed_on) == 1_000
    assert threading.get_ident() not in freed_on
