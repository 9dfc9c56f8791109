"""Kills the broker while it deletes a vhost and a user, again and again.

After the start either nothing of each is deleted or all of it.
"""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import grpc
import pytest

from penstock.storage import directory_name
from penstock.v1 import admin_pb2 as admin
from penstock.v1.admin_pb2_grpc import AdminServiceStub
from support import Broker

ROUNDS = int(os.environ.get("KILL_ROUNDS", "100")) // 10
SEED = int(os.environ.get("KILL_SEED", "0")) or Random().randrange(1, 1_000_000)
SECONDS_MAX = 0.4
QUEUES = 5
GUEST = (("authorization", "Basic " + base64.b64encode(b"guest:guest").decode()),)


@contextmanager
def administration(broker: Broker) -> Iterator[Callable[..., object]]:
    """Return a call of an administrator: its method's name and the request."""
    with grpc.insecure_channel(broker.address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        stub = AdminServiceStub(channel)
        yield lambda method, request: getattr(stub, method)(request, metadata=GUEST, timeout=30)


def fill(broker: Broker) -> None:
    """Make what is not there."""
    with administration(broker) as call:
        call("CreateVhost", admin.CreateVhostRequest(name="blue"))
        call("PutUser", admin.PutUserRequest(name="anna", password=""))
        call("SetUserLimits", admin.SetUserLimitsRequest(name="anna", limits=admin.UserLimits(publish_rate=5)))
        for user in ("anna", "guest"):
            everything = admin.Permission(user=user, vhost="blue", configure=".*", write=".*", read=".*")
            call("SetPermission", admin.SetPermissionRequest(permission=everything))
        for number in range(QUEUES):
            queue = admin.Queue(name=f"q{number}", durable=True)
            call("DeclareQueue", admin.DeclareQueueRequest(vhost="blue", queue=queue))


def delete(broker: Broker) -> None:
    with suppress(grpc.RpcError), administration(broker) as call:
        call("DeleteVhost", admin.DeleteVhostRequest(name="blue"))
        call("DeleteUser", admin.DeleteUserRequest(name="anna"))


def read(path: Path) -> dict[str, dict[str, object]]:
    found = json.loads(path.read_text()) if path.exists() else []
    return {entry["name"]: entry for entry in found} if isinstance(found, list) else found


def check(data: Path) -> tuple[bool, bool]:
    """Return whether the vhost and the user are there, all of each."""
    users, vhosts = read(data / "users.json"), read(data / "vhosts.json")
    vhost = {"blue" in vhosts, (data / directory_name("blue")).exists()}
    vhost |= {"blue" in str(user["permissions"]) for user in users.values() if user["name"] == "guest"}
    assert len(vhost) == 1, vhost
    assert ("blue" in vhosts) or "blue" not in str(users)
    user = {"anna" in users, "anna" in read(data / "user_limits.json")}
    assert len(user) == 1, user
    assert not (data / "deletions.json").exists()
    return vhost.pop(), user.pop()


@pytest.mark.slow
def test_a_killed_deletion_is_done_or_not_begun(tmp_path: Path) -> None:
    random = Random(SEED)
    print(f"KILL_SEED={SEED}")
    outcomes: set[tuple[bool, bool]] = set()
    with Broker(tmp_path / "data") as broker:
        for _ in range(ROUNDS):
            fill(broker)
            deleting = threading.Thread(target=delete, args=[broker])
            deleting.start()
            time.sleep(random.uniform(0, SECONDS_MAX))
            broker.kill()
            deleting.join()
            broker.start()
            outcomes.add(check(tmp_path / "data"))
    print(f"(vhost, user) after the starts: {outcomes}")
    assert outcomes
