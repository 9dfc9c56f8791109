"""The verbs of virtual hosts, which `services` calls."""

from penstock.vhost.rights import Rights
from penstock.vhost.vhost import QueueStatus, Vhost
from penstock.vhost.vhosts import Vhosts

__all__ = ["QueueStatus", "Rights", "Vhost", "Vhosts"]
