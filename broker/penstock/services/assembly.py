"""Builds the services of a broker from its parts. The launcher calls it before there is any listener."""

from dataclasses import dataclass, field

from penstock.kit.clock import Clock
from penstock.services.administrator import Administrator
from penstock.services.admission import AdmissionVerbs
from penstock.services.archives import NoArchives
from penstock.services.backups import BackupVerbs
from penstock.services.clients import ClientVerbs
from penstock.services.cluster import ClusterVerbs
from penstock.services.connections import Connections
from penstock.services.definitions import DefinitionVerbs
from penstock.services.ended_stages import EndedStages
from penstock.services.events import Events, TokenChanged
from penstock.services.leases import LeaseVerbs
from penstock.services.limits import LimitVerbs
from penstock.services.listeners import Listeners
from penstock.services.log_ins import LogIns
from penstock.services.policies import PolicyVerbs
from penstock.services.ports import Accounts, Archives, Backups, Cluster, LimitsOfUsers, Node, SignIn
from penstock.services.principal import CatchUp
from penstock.services.sessions import SessionVerbs
from penstock.services.stages import StageVerbs
from penstock.services.status import StatusVerbs
from penstock.services.streams import StreamVerbs
from penstock.services.token_sessions import Later, TokenSessions
from penstock.services.topology import TopologyVerbs
from penstock.services.users import UserVerbs
from penstock.services.vhosts import VhostVerbs
from penstock.vhost.all_vhosts import AllVhosts
from penstock.vhost.ports import DefinitionsUsers


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The parts that services are built from.

    `later` schedules a callback after a number of seconds. `events` also come from parts that change without a verb.
    `catch_up` and `cluster` are there in a cluster.
    """

    vhosts: AllVhosts
    accounts: Accounts
    user_limits: LimitsOfUsers
    definitions_users: DefinitionsUsers
    backups: Backups
    node: Node
    sign_in: SignIn
    log_ins: LogIns
    clock: Clock
    later: Later
    archives: Archives = field(default_factory=NoArchives)
    events: Events = field(default_factory=Events)
    catch_up: CatchUp | None = None
    cluster: Cluster | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """All a front end needs: the verbs, by subject, and the listeners that hear of changes."""

    administrator: Administrator
    listeners: Listeners
    connections: Connections
    sessions: SessionVerbs
    clients: ClientVerbs
    vhosts: VhostVerbs
    topology: TopologyVerbs
    users: UserVerbs
    limits: LimitVerbs
    policies: PolicyVerbs
    admission: AdmissionVerbs
    streams: StreamVerbs
    leases: LeaseVerbs
    stages: StageVerbs
    definitions: DefinitionVerbs
    backups: BackupVerbs
    status: StatusVerbs
    cluster: ClusterVerbs


def build(parts: Parts) -> Services:
    """Return the services of a broker."""
    events, connections, vhosts = parts.events, Connections(), parts.vhosts
    listeners = Listeners(vhosts.by_name, parts.user_limits)
    events.subscribe(listeners.take)
    connections.watch_ends(parts.backups.connection_ended)
    tokens = TokenSessions(
        parts.clock,
        parts.later,
        lambda connection: events.emit(TokenChanged(connection)),
        parts.sign_in.refresh_keys,
    )
    parts.sign_in.watch_keys(tokens.keys_removed)
    sessions = SessionVerbs(parts.sign_in, connections, tokens, parts.user_limits, parts.log_ins, vhosts)
    sessions.catch_up = parts.catch_up
    return Services(
        administrator=Administrator(parts.accounts, vhosts, events),
        listeners=listeners,
        connections=connections,
        sessions=sessions,
        clients=ClientVerbs(connections, listeners),
        vhosts=VhostVerbs(vhosts, connections, events),
        topology=TopologyVerbs(vhosts, sessions, events),
        users=UserVerbs(parts.accounts, vhosts, connections, events),
        limits=LimitVerbs(vhosts, parts.user_limits, connections, events),
        policies=PolicyVerbs(vhosts),
        admission=AdmissionVerbs(vhosts, connections, tokens),
        streams=StreamVerbs(vhosts, parts.archives, events),
        leases=LeaseVerbs(vhosts),
        stages=StageVerbs(vhosts, tokens, EndedStages(parts.clock)),
        definitions=DefinitionVerbs(vhosts, parts.definitions_users, parts.node, events),
        backups=BackupVerbs(parts.backups),
        status=StatusVerbs(parts.node),
        cluster=ClusterVerbs(parts.cluster, parts.node),
    )
