"""A fake of the users' port of definitions: records its input, and refuses users named `bad`."""

from typing import Any

from penstock.model.names import VhostName
from penstock.vhost.definitions import add_all, check_import
from penstock.vhost.ports import DefinitionsUsers
from penstock.vhost.rights import Rights
from penstock.vhost.vhosts import Vhosts

JSON = dict[str, Any]


async def import_definitions(
    vhosts: Vhosts,
    users: DefinitionsUsers,
    rights: Rights,
    text: bytes,
    into: VhostName | None = None,
    skipped: list[str] | None = None,
) -> dict[str, int]:
    """Check an import, and add what it has, as the services do."""
    return await add_all(vhosts, users, await check_import(vhosts, users, rights, text, into, skipped))


class FakeUsers:
    def __init__(self) -> None:
        self.users: list[JSON] = []
        self.permissions: list[JSON] = []
        self.topics: list[JSON] = []

    def export_users(self) -> list[JSON]:
        return list(self.users)

    def export_permissions(self) -> list[JSON]:
        return list(self.permissions)

    def export_topics(self) -> list[JSON]:
        return list(self.topics)

    def check(self, users: list[JSON], permissions: list[JSON], topics: list[JSON]) -> list[str]:
        return [f"user '{user['name']}' is bad" for user in users if user["name"] == "bad"]

    async def import_users(self, users: list[JSON]) -> int:
        return self._add(self.users, users)

    async def import_permissions(self, permissions: list[JSON]) -> int:
        return self._add(self.permissions, permissions)

    async def import_topics(self, topics: list[JSON]) -> int:
        return self._add(self.topics, topics)

    @staticmethod
    def _add(there: list[JSON], wanted: list[JSON]) -> int:
        new = [item for item in wanted if item not in there]
        there += new
        return len(new)
