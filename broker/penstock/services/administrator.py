"""The administrator whose password is in a file: the user has that password and the tag, whatever others change.

When the file's password changes, the previous one is accepted for some time, because clients get the new one later. A
password that was set otherwise is replaced and not accepted any more.
"""

from penstock.identity import Permission, User
from penstock.kit.logging import logger
from penstock.model.names import DEFAULT_VHOST
from penstock.services import audit
from penstock.services.events import Events, PermissionsChanged
from penstock.services.ports import Accounts
from penstock.vhost.all_vhosts import AllVhosts

_log = logger("accounts")
_TAG = "administrator"


class Administrator:
    """Calls of `keep` must not overlap."""

    def __init__(self, accounts: Accounts, vhosts: AllVhosts, events: Events) -> None:
        self._accounts = accounts
        self._vhosts = vhosts
        self._events = events
        self._password: str | None = None
        self._digest = ""

    async def keep(self, name: str, password: str, grace_seconds: float) -> None:
        """Make the user as it should be; it costs nothing when it is so. Raises what `Accounts.put_user` raises."""
        user = self._accounts.find(name)
        is_known = user is not None and password == self._password and user.password_hash == self._digest
        if user is not None and user.is_administrator and (is_known or await self._has(user, password)):
            return
        change = self._change(user, password)
        if user is not None and change == "password":
            self._accounts.passwords.accept_previous(user, grace_seconds)
        tags = sorted({_TAG, *(tag.value for tag in (user.tags if user is not None else ()))})
        await self._accounts.put_user(name, password, tags)
        if user is None and DEFAULT_VHOST in self._vhosts.by_name():
            await self._accounts.set_permission(name, DEFAULT_VHOST, Permission.compile(".*", ".*", ".*"))
        self._remember(self._accounts.find(name), password)
        audit.own("KeepAdministrator", user=name, change=change)
        if change != "password":
            _log.warning("the administrator was changed and is as default_password_file says again", user=name)
        self._events.emit(PermissionsChanged(name))

    async def _has(self, user: User, password: str) -> bool:
        is_right = await self._accounts.passwords.has_password(user, password)
        if is_right:
            self._remember(user, password)
        return is_right

    def _change(self, user: User | None, password: str) -> str:
        """Return what is changed: the file's password, or what others made of the user."""
        if user is None:
            return "missing"
        is_as_it_was = self._password is None or user.password_hash == self._digest
        return "password" if is_as_it_was and password != self._password else "restored"

    def _remember(self, user: User | None, password: str) -> None:
        self._password, self._digest = password, user.password_hash if user is not None else ""
