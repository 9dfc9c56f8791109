"""The use cases of a broker, one module a subject.

A verb takes a principal, authorizes, decides, commits, is audited and emits events. Front ends know only this package
of the broker; it knows no front end.
"""

from penstock.metadata.binding_index import BindingPlace, place_of
from penstock.metadata.commands import DeclareExchange, DeclareQueue
from penstock.metadata.policies import Policy
from penstock.services.admission import NO_QUEUE, Admission
from penstock.services.assembly import Parts, Services, build
from penstock.services.clients import ConsumerPlace, consumer_place
from penstock.services.connections import Connection
from penstock.services.listeners import Listener
from penstock.services.policies import WantedPolicy
from penstock.services.ports import ArchivedRows, ArchiveStanding
from penstock.services.principal import Certificate, Credentials, NoCredentials, Password, Principal, Token
from penstock.services.stages import OpenedStage, StageTarget
from penstock.services.users import HeldPermission, HeldTopicPermission
from penstock.vhost.streams import PartitionStatus, StreamStatus, is_full_page
from penstock.vhost.vhost import QueueStatus

__all__ = [
    "NO_QUEUE",
    "Admission",
    "ArchiveStanding",
    "ArchivedRows",
    "BindingPlace",
    "Certificate",
    "Connection",
    "ConsumerPlace",
    "Credentials",
    "DeclareExchange",
    "DeclareQueue",
    "HeldPermission",
    "HeldTopicPermission",
    "Listener",
    "NoCredentials",
    "OpenedStage",
    "PartitionStatus",
    "Parts",
    "Password",
    "Policy",
    "Principal",
    "QueueStatus",
    "Services",
    "StageTarget",
    "StreamStatus",
    "Token",
    "WantedPolicy",
    "build",
    "consumer_place",
    "is_full_page",
    "place_of",
]
