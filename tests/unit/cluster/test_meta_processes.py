"""The metadata of three brokers in processes of their own, over real connections and logs, with kills."""

import json
from pathlib import Path

import pytest

from penstock.cluster.meta.commands import CreateVhost, InVhost, MetaCommand, PutUser
from penstock.metadata.commands import DeclareQueue
from penstock.model.names import ConnectionId, QueueName, VhostName
from support.meta_commands import DIGEST
from support.meta_processes import MetaProcesses

pytestmark = pytest.mark.slow
NAMES = ["mq-0", "mq-1", "mq-2"]
SHOP = VhostName("shop")


def vhosts_in(files: dict[str, bytes]) -> set[str]:
    return {vhost["name"] for vhost in json.loads(files["vhosts.json"])}


def test_a_command_given_to_any_broker_is_applied_on_all(tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        cluster.submit("mq-0", CreateVhost(SHOP))
        cluster.submit("mq-1", PutUser("anna", ("administrator",), DIGEST, "argon2id"))
        cluster.submit("mq-2", InVhost(SHOP, DeclareQueue(QueueName("orders"), ConnectionId(1))))

        files = cluster.until_equal()

        assert vhosts_in(files) == {"shop"}
        assert [user["name"] for user in json.loads(files["users.json"])] == ["anna"]
        assert any(b"orders" in content for path, content in files.items() if path.endswith("definitions.amqp"))


def test_commands_go_on_when_the_leader_is_killed_and_it_catches_up(tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        cluster.submit("mq-0", CreateVhost(SHOP))
        cluster.until_in_sync(len(NAMES))
        killed = cluster.leader()
        others = [name for name in NAMES if name != killed]

        cluster.kill(killed)
        for number, name in enumerate(others * 4):
            cluster.submit(name, CreateVhost(VhostName(f"after-{number}")))
        assert cluster.leader() in others
        cluster.start(killed)
        cluster.submit(killed, CreateVhost(VhostName("last")))

        cluster.until_in_sync(len(NAMES))
        assert vhosts_in(cluster.until_equal()) == {"shop", "last", *(f"after-{number}" for number in range(8))}


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
def test_all_brokers_start_again_with_all_that_was_answered(is_killed: bool, tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        for number, name in enumerate(NAMES):
            cluster.submit(name, CreateVhost(VhostName(f"before-{number}")))
        for name in NAMES:
            (cluster.kill if is_killed else cluster.stop)(name)
        for name in NAMES:
            cluster.start(name)

        cluster.submit("mq-1", CreateVhost(VhostName("after")))

        assert vhosts_in(cluster.until_equal()) == {"before-0", "before-1", "before-2", "after"}


def test_a_leader_that_cannot_write_its_files_leaves_the_others_to_decide(tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        cluster.submit("mq-0", CreateVhost(SHOP))
        cluster.until_in_sync(len(NAMES))
        broken = cluster.leader()
        others = [name for name in NAMES if name != broken]
        file = cluster.directory(broken) / "users.json"
        file.unlink()
        file.mkdir()  # no file can take its place

        cluster.submit(others[0], PutUser("anna", ("administrator",), DIGEST, "argon2id"))
        cluster.submit(others[1], CreateVhost(VhostName("after")))

        assert cluster.leader() in others


def changes(count: int) -> list[MetaCommand]:
    """Return commands that change something each, but leave few things behind."""
    tags = [("administrator",), ()]
    return [
        PutUser(f"user-{number % 10}", tags[number // 10 % 2], DIGEST, "argon2id", force=True)
        for number in range(count)
    ]


@pytest.mark.parametrize("is_blank", [True, False], ids=["blank", "old"])
def test_a_broker_that_was_away_goes_on_from_a_checkpoint_of_another_one(is_blank: bool, tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        cluster.submit("mq-0", CreateVhost(SHOP))
        cluster.submit_all("mq-1", changes(50))
        cluster.until_in_sync(len(NAMES))
        away = next(name for name in NAMES if name != cluster.leader())
        others = [name for name in NAMES if name != away]
        cluster.kill(away)
        if is_blank:
            cluster.wipe(away)

        for part in range(8):
            cluster.submit_all(others[part % 2], changes(300))
            cluster.submit(others[0], CreateVhost(VhostName(f"vhost-{part}")))
        for name in others:  # so their first records are nowhere any more
            cluster.until_short(name)
        for _ in range(3):  # it is killed at some step of its return
            cluster.start(away)
            cluster.submit_all(others[1], changes(20))
            cluster.kill(away)
        cluster.start(away)
        cluster.submit(away, CreateVhost(VhostName("last")))

        cluster.until_in_sync(len(NAMES))
        files = cluster.until_equal()
        assert vhosts_in(files) == {"shop", "last", *(f"vhost-{part}" for part in range(8))}
        cluster.submit_all(away, changes(300))
        cluster.until_short(away)


def test_the_log_stays_short_while_leaders_are_killed(tmp_path: Path) -> None:
    with MetaProcesses(tmp_path, NAMES) as cluster:
        cluster.submit("mq-0", CreateVhost(SHOP))
        for part in range(4):
            cluster.until_in_sync(len(NAMES))
            killed = cluster.leader()
            cluster.submit_all(killed, changes(200))
            cluster.kill(killed)
            other = next(name for name in NAMES if name != killed)
            cluster.submit_all(other, changes(200))
            cluster.submit(other, CreateVhost(VhostName(f"vhost-{part}")))
            cluster.start(killed)

        cluster.until_in_sync(len(NAMES))
        cluster.submit_all("mq-0", changes(200))
        files = cluster.until_equal()
        assert vhosts_in(files) == {"shop", *(f"vhost-{part}" for part in range(4))}
        for name in NAMES:
            cluster.until_short(name)
