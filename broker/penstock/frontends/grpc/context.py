"""What the handlers of this front end work on, handed in once by the launcher."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.frontends.grpc.connections import Connections
from penstock.frontends.grpc.sessions import Sessions
from penstock.frontends.ports import Accounts, Backups, LimitsOfUsers, Node, Quotas, SignIn
from penstock.vhost.ports import DefinitionsUsers
from penstock.vhost.vhosts import Vhosts


@dataclass(frozen=True, slots=True)
class Context:
    """`forget` makes the open streams ask again what they may do."""

    vhosts: Vhosts
    accounts: Accounts
    node: Node
    definitions_users: DefinitionsUsers
    backups: Backups
    forget: Callable[[], None]
    sign_in: SignIn
    sessions: Sessions
    connections: Connections
    user_limits: LimitsOfUsers
    quotas: Quotas
