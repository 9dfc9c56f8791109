"""A backup whose users.json everybody may read must not become a data directory whose users.json everybody may read."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from rig import GUEST, PYTHON, Broker, administration, backups, run


def check():
    with tempfile.TemporaryDirectory(prefix="repro-") as own, Broker() as broker:
        folder = Path(own)
        backup, copy, restored = folder / "backup", folder / "copy", folder / "restored"
        broker.start()
        with broker.channel() as channel:
            request = backups.BackupRequest(directory=str(backup))
            administration(channel).Backup(request, metadata=GUEST, timeout=60)
        users = (broker.data / "users.json").stat().st_mode & 0o777
        (found,) = backup.rglob("users.json")
        made = found.stat().st_mode & 0o777
        shutil.copytree(found.parent, copy)
        (copy / "users.json").chmod(0o644)  # as copying by other tools leaves it
        command = [str(PYTHON.with_name("penstock")), "restore", str(copy), "--data-dir", str(restored)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        mode = (restored / "users.json").stat().st_mode & 0o777
    return bool(mode & 0o077), (
        f"users.json is {users:o} at the broker, {made:o} in its backup, 644 in a copy and {mode:o} once restored "
        f"(exit {ended.returncode})"
    )


run(check)
