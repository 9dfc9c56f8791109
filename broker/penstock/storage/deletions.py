"""The completion of deletions that an earlier run began, of virtual hosts and users, on the files alone.

Every step may have been done before, and may be interrupted again: `deletions.json` loses an entry after its last step.
The last step of a user's deletion needs the logs, so its entry stays until they are open.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final

from penstock.model.errors import StorageError, Thing
from penstock.storage.deletions_json import Deletion, Kind
from penstock.storage.directory import DataDirectory
from penstock.storage.jsonfiles import write_json
from penstock.storage.limits_json import read_user_limits_file
from penstock.storage.records_json import UserRecord, read_users, read_vhosts, write_users, write_vhosts
from penstock.storage.vhost_files import delete_vhost_directory

FIRST_ADMINISTRATOR: Final = "admin"
PASSWORD_FILE: Final = "admin-password"
"""The file with the password that the first start made for the first administrator."""


def complete_deletions(data: DataDirectory) -> list[Deletion]:
    """Do the steps on files of the deletions that have begun, before anything is opened.

    Return the deletions that are complete with that. Blocks. Raises StorageError.
    """
    complete: list[Deletion] = []
    for deletion in data.deletions.begun:
        if deletion.kind is Kind.VHOST:
            _complete_vhost(data, deletion.name)
            data.deletions.end(deletion)
            complete.append(deletion)
        else:
            _complete_user(data, deletion.name)
    return complete


def remove_password_file(directory: Path, user: str) -> None:
    """Remove the file with the first administrator's password when that user is deleted. Blocks."""
    if user != FIRST_ADMINISTRATOR:
        return
    path = directory / PASSWORD_FILE
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            Thing("file", str(path)), f"cannot be removed: {error.strerror}", "make it writable for the broker's user"
        ) from error


def _complete_vhost(data: DataDirectory, name: str) -> None:
    delete_vhost_directory(data.vhost_directory(name))  # first, because a full disk has space for the rest then
    vhosts = read_vhosts(data.vhosts_file) or []
    if name in vhosts:
        write_vhosts(data.vhosts_file, [other for other in vhosts if other != name])
    users = read_users(data.users_file) or []
    left = [_without_vhost(user, name) for user in users]
    if left != users:
        write_users(data.users_file, left)


def _complete_user(data: DataDirectory, name: str) -> None:
    users = read_users(data.users_file) or []
    if any(user.name == name for user in users):
        write_users(data.users_file, [user for user in users if user.name != name])
    limits = read_user_limits_file(data.user_limits_file)
    if name in limits:
        del limits[name]
        write_json(data.user_limits_file, limits)
    remove_password_file(data.path, name)


def _without_vhost(user: UserRecord, vhost: str) -> UserRecord:
    permissions = {name: held for name, held in user.permissions.items() if name != vhost}
    topics = {name: held for name, held in user.topics.items() if name != vhost}
    return replace(user, permissions=permissions, topics=topics)
