"""The verbs of virtual hosts, which `services` calls."""

from penstock.vhost.actor import Actor
from penstock.vhost.vhost import QueueStatus, Vhost
from penstock.vhost.vhosts import Vhosts

__all__ = ["Actor", "QueueStatus", "Vhost", "Vhosts"]
