"""The users' part of definitions: it round-trips, and reports unsupported parts beforehand."""

import asyncio
import threading

import pytest

from penstock.identity import Users
from penstock.model.records import Access
from penstock.services import accounts as accounts_module
from penstock.services import definitions_users
from penstock.services.accounts import Accounts
from penstock.services.definitions_users import DefinitionsUsers
from penstock.services.user_limits import LimitsOfUsers

PERMISSION = {"user": "anna", "vhost": "/", "configure": "", "write": "a.*", "read": ".*"}
TOPIC = {"user": "anna", "vhost": "/", "exchange": "logs", "write": "{username}\\..*", "read": ""}


def play(path, scenario):
    async def run():
        accounts = Accounts.open(path, "guest", "guest")
        try:
            return await scenario(
                accounts, DefinitionsUsers(accounts, LimitsOfUsers.open(path.with_name("user_limits.json")))
            )
        finally:
            await accounts.settled()
            accounts.close()

    return asyncio.run(run())


def test_an_export_goes_into_another_broker(tmp_path):
    async def make(accounts, users):
        await accounts.put_user("anna", "secret", ["monitoring"])
        assert await users.import_permissions([PERMISSION]) == 1
        assert await users.import_topics([TOPIC]) == 1
        return users.export_users(), users.export_permissions(), users.export_topics()

    async def take(accounts, users):
        assert users.check(exported, permissions, topics) == []
        assert await users.import_users(exported) == 2
        assert await users.import_permissions(permissions) == 1
        assert await users.import_topics(topics) == 1
        assert await users.import_users(exported) == 0
        assert await users.import_permissions(permissions) == 0
        assert await users.import_topics(topics) == 0
        await accounts.log_in("anna", "secret")
        return users.export_users(), users.export_permissions(), users.export_topics()

    exported, permissions, topics = play(tmp_path / "one.json", make)

    assert topics == [TOPIC]
    assert play(tmp_path / "two.json", take) == (exported, permissions, topics)


def test_importing_a_user_keeps_the_permissions_it_has(tmp_path):
    async def scenario(accounts, users):
        await users.import_users([{"name": "guest", "password_hash": "", "tags": "administrator,monitoring"}])
        guest = accounts.users()[0]
        assert list(guest.permissions) == ["/"]
        assert [tag.value for tag in guest.tags] == ["administrator", "monitoring"]

    play(tmp_path / "users.json", scenario)


@pytest.mark.parametrize(
    ("topic", "problem"),
    [
        ({**TOPIC, "user": "guest", "write": "("}, "regular expression"),
        ({**TOPIC, "user": "guest", "write": "{client_id}"}, "client_id"),
        (TOPIC, "does not exist"),
        ({**TOPIC, "user": "guest", "exchange": 7}, "wrong type"),
        ({**TOPIC, "user": "guest", "configure": ""}, "configure"),
    ],
)
def test_a_topic_permission_that_cannot_be_honoured_is_told_beforehand(tmp_path, topic, problem):
    async def scenario(_, port):
        problems = port.check([], [], [topic])
        assert len(problems) == 1
        assert problem in problems[0]

    play(tmp_path / "users.json", scenario)


@pytest.mark.parametrize(
    ("users", "permissions", "problem"),
    [
        ([{"name": "a", "hashing_algorithm": "rabbit_password_hashing_md5", "password_hash": "x"}], [], "md5 digest"),
        ([{"name": "a", "tags": ["boss"]}], [], "boss"),
        ([{"name": "a", "limits": {"max-shoes": 1}}], [], "max-shoes"),
        ([{"name": "a", "limits": {"publish-rate": 0}}], [], "publish-rate"),
        ([{"name": "a", "limits": 7}], [], "wrong type"),
        ([{"name": 7}], [], "wrong type"),
        ([{"name": "a", "tags": [7]}], [], "wrong type"),
        ([{"name": "a", "colour": "red"}], [], "colour"),
        ([], [{**PERMISSION, "read": "("}], "regular expression"),
        ([], [{**PERMISSION, "read": "(?!amq).*"}], "user 'anna': pattern '(?!amq).*' has the look-around `(?!`"),
        ([], [PERMISSION], "does not exist"),
        ([], [{**PERMISSION, "user": "guest", "read": None}], "wrong type"),
    ],
)
def test_what_cannot_be_honoured_is_told_beforehand(tmp_path, users, permissions, problem):
    async def scenario(_, port):
        problems = port.check(users, permissions, [])
        assert len(problems) == 1
        assert problem in problems[0]

    play(tmp_path / "users.json", scenario)


def test_an_import_that_leaves_no_administrator_is_refused(tmp_path):
    """An export of a broker whose `guest` is no administrator locked everybody out."""

    async def scenario(_accounts, users):
        stripped = {"name": "guest", "password_hash": "", "tags": ""}
        (problem,) = users.check([stripped], [], [])
        assert "'guest'" in problem
        assert "administrator" in problem
        other = {"name": "root", "password_hash": "", "tags": "administrator"}
        assert users.check([stripped, other], [], []) == []
        assert users.check([other], [], []) == []

    play(tmp_path / "users.json", scenario)


def test_an_import_reads_its_entries_on_a_thread_and_changes_the_users_once(tmp_path, monkeypatch):
    """10,000 users with permissions and topic permissions held up all other calls for a minute."""
    threads, changes = set(), []

    def note(module, name):
        work = getattr(module, name)

        def noted(*arguments):
            threads.add(threading.current_thread())
            return work(*arguments)

        monkeypatch.setattr(module, name, noted)

    for name in ("read_user", "read_permission", "read_topic"):
        note(definitions_users, name)
    note(accounts_module, "records_of")

    async def scenario(accounts, users):
        threads.clear()  # the first user was written before there was a loop
        change = accounts.change
        monkeypatch.setattr(Users, "set_topic", None)

        async def counted(wanted):
            changes.append(wanted)
            await change(wanted)

        accounts.change = counted
        entries = [{**TOPIC, "user": "guest", "exchange": f"x{number}"} for number in range(5)]
        assert await users.import_users([{"name": "anna", "password_hash": "", "tags": ""}]) == 1
        assert await users.import_permissions([PERMISSION]) == 1
        assert await users.import_topics([*entries, {**TOPIC, "vhost": "other"}]) == 6
        assert await users.import_topics([*entries, TOPIC]) == 1
        assert len(users.export_topics()) == 7

    play(tmp_path / "users.json", scenario)
    assert len(changes) == 4
    assert threading.main_thread() not in threads


def test_an_import_leaves_no_limits_of_a_user_that_is_deleted_meanwhile(tmp_path):
    """They stayed, and a user of that name made later inherited them."""

    async def scenario(accounts, users):
        change = accounts.change

        async def change_and_lose(wanted):
            await change(wanted)
            await accounts.delete_user("anna")

        accounts.change = change_and_lose
        await users.import_users([{"name": "anna", "password_hash": "", "tags": "", "limits": {"max-channels": 2}}])
        assert users._limits.all() == {}

    play(tmp_path / "users.json", scenario)


def test_an_import_compiles_patterns_once(tmp_path):
    """It compiled them to check them and again to keep them: 15 seconds for 10,000 topic permissions."""

    async def scenario(accounts, users):
        entry = {**TOPIC, "user": "guest"}
        assert users.check([], [], [entry]) == []
        assert await users.import_topics([entry]) == 1
        topic = accounts.find("guest").topics[entry["vhost"]][entry["exchange"]]
        assert topic._compiled == {}
        topic.allows(Access.WRITE, "key")
        assert list(topic._compiled) == [entry["write"]]

    play(tmp_path / "users.json", scenario)
