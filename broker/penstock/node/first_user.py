"""The first user of a new broker.

On loopback that is `guest`, whose password is public. A broker that other machines can reach never begins with `guest`:
unless the operator named a user or a file with its password, it generates an administrator's password, writes it into a
file in the data directory that only its own user can read, and prints the path once.
"""

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from penstock.identity.users import LOOPBACK_ONLY_USER
from penstock.kit.peers import is_loopback
from penstock.node.config import Settings
from penstock.node.password_file import read_password
from penstock.storage.deletions import FIRST_ADMINISTRATOR, PASSWORD_FILE
from penstock.storage.jsonfiles import write_file

_PASSWORD_BYTES: Final = 24
# The listeners that take log-ins.
_LISTENERS: Final = ("grpc", "amqp", "amqp_ws")


@dataclass(frozen=True, slots=True)
class FirstUser:
    """`password_file` has the password when it was generated at this start."""

    name: str
    password: str
    password_file: Path | None = None


def choose_first_user(settings: Settings, users_file: Path) -> FirstUser:
    """Return the user for a data directory that has none yet. Blocks. Raises StorageError or StartError."""
    if settings.default_password_file is not None and not users_file.exists():
        return FirstUser(settings.default_user, read_password(settings.default_password_file))
    configured = FirstUser(settings.default_user, settings.default_password.get_secret_value())
    is_everybody_s = configured == FirstUser(LOOPBACK_ONLY_USER, LOOPBACK_ONLY_USER)
    if users_file.exists() or not is_everybody_s or not is_beyond_loopback(settings):
        return configured
    password, path = secrets.token_urlsafe(_PASSWORD_BYTES), users_file.with_name(PASSWORD_FILE)
    write_file(path, password.encode() + b"\n")
    return FirstUser(FIRST_ADMINISTRATOR, password, path)


def is_beyond_loopback(settings: Settings) -> bool:
    """Whether clients of other machines can reach the broker."""
    addresses = [settings.address(listener) for listener in _LISTENERS]
    return any(each and each.host != "localhost" and not is_loopback(each.host) for each in addresses)
