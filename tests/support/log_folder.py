"""The folder of a virtual host with the files of a replica's log and others, for tests that take the log out of it."""

from pathlib import Path

OF_A_LOG = ("replica", "msgs.0000000001", "checkpoint.0000000001", "manifest", "synced", "copy.msgs.0000000002")
OTHERS = ("definitions.amqp", "policies.json", ".vhost")


def folder(root: Path) -> Path:
    directory = root / "0123"
    directory.mkdir()
    for name in (*OF_A_LOG, *OTHERS):
        (directory / name).write_text(name)
    return directory


def names(directory: Path) -> list[str]:
    return sorted(file.name for file in directory.iterdir())
