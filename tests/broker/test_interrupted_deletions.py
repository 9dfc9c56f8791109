"""A start of a real broker on a data directory in which a deletion was interrupted."""

import json
from pathlib import Path

from support import Broker


def test_a_start_completes_a_deletion_before_it_is_ready(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Broker(data) as broker:
        broker.stop()
        users = json.loads((data / "users.json").read_text())
        anna = {"name": "anna", "password_hash": "", "hashing_algorithm": "argon2id"}
        (data / "users.json").write_text(json.dumps([*users, anna]))
        (data / "user_limits.json").write_text(json.dumps({"anna": {"publish-rate": 5}}))
        (data / "deletions.json").write_text(json.dumps([{"kind": "user", "name": "anna"}]))

        broker.start()

        assert [user["name"] for user in json.loads((data / "users.json").read_text())] == ["guest"]
        assert json.loads((data / "user_limits.json").read_text()) == {}
        assert not (data / "deletions.json").exists()
        assert "deletion completed" in broker.log
