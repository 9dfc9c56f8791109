"""What the handlers of this front end work on, handed in once by the launcher."""

from collections.abc import Callable
from dataclasses import dataclass

from penstock.services.connections import Connections
from penstock.services.log_ins import LogIns
from penstock.services.ports import Accounts, Archives, Backups, LimitsOfUsers, Node, Quotas, SignIn
from penstock.services.sessions import Sessions
from penstock.vhost.ports import DefinitionsUsers
from penstock.vhost.vhosts import Vhosts


@dataclass(frozen=True, slots=True)
class Context:
    """`forget` makes publishers ask again which exchanges they may write, `recheck` every open stream whether it may go
    on."""

    vhosts: Vhosts
    accounts: Accounts
    node: Node
    definitions_users: DefinitionsUsers
    backups: Backups
    forget: Callable[[], None]
    recheck: Callable[[], None]
    sign_in: SignIn
    sessions: Sessions
    connections: Connections
    user_limits: LimitsOfUsers
    quotas: Quotas
    log_ins: LogIns
    archives: Archives | None = None
