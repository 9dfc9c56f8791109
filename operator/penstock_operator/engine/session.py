"""Talks to one broker for one object: connects, finds, makes and removes its thing.

A refusal of the broker is a NotYet with its reason; a broker that does not answer is a BrokerUnreachableError.
"""

from collections.abc import Callable
from typing import TypeVar

from penstock import Connection
from penstock.client.errors import AccessRefusedError, NotAuthenticatedError, PenstockError, RefusedError
from penstock_operator.api import TopologySpec
from penstock_operator.desired.cluster_status import waits_after_loss
from penstock_operator.desired.topology import Fields
from penstock_operator.engine.home import Home, NotYet
from penstock_operator.engine.users import Credentials
from penstock_operator.engine.workers import Later
from penstock_operator.engine.world import World
from penstock_operator.links import BrokerUnreachableError
from penstock_operator.links.brokers import UNREACHABLE
from penstock_operator.links.topology import open_vhost, put, remove

T = TypeVar("T")


class Session:
    """The thing of one object on its broker."""

    def __init__(self, world: World, home: Home, spec: TopologySpec) -> None:
        """Connect. Raises NotYet, for example when the virtual host does not exist."""
        self._world = world
        self._brokers = world.brokers
        self._home = home
        self._place = home.place
        self.spec = spec
        self._broker = self._connect()

    def find(self) -> Fields | None:
        """Return the broker's fields, which may be a second old; None when there is no such thing."""
        return self._ask(lambda: self._brokers.listings.find(self._broker, self._place, self.spec))

    def check_data(self) -> None:
        """Raise NotYet when the broker began empty, which its Cluster has not found yet, and nothing may be declared.

        An object is often checked first: the broker answers before the Cluster is looked at.
        """
        owner = self._home.owner
        if owner is None or not waits_after_loss(owner):
            return
        key = self._home.key
        known = ((self._world.store.get(key) or {}).get("status") or {}).get("dataId")
        found = self._ask(lambda: self._broker.admin.status().data_id)
        if known and found and known != found:
            self._world.add(key, 0.0)
            raise NotYet("DataLost", f"the broker of Cluster '{owner.name}' has other data than before: {found}")

    def put(self, credentials: Credentials | None, *, is_new: bool) -> None:
        """Make the thing, or change it."""
        self._check_acts()
        password = credentials.password if credentials else None
        is_random = credentials is not None and credentials.is_generated
        self._ask(lambda: put(self._broker, self.spec, self._home.account, password, is_random=is_random))
        self._brokers.listings.put(self._place, self.spec, is_new=is_new)
        if credentials is not None:
            self._brokers.note_password(self._place, credentials.address)

    def remove(self) -> None:
        """Delete the thing; a missing one is fine."""
        self._check_acts()
        self._ask(lambda: remove(self._broker, self.spec))
        self._brokers.listings.removed(self._place, self.spec)

    def has_password(self, credentials: Credentials, found: Fields) -> bool:
        """Return whether the broker takes the password."""
        digest, algorithm = found.get("digest", ""), found.get("algorithm", "")
        return self._ask(lambda: self._brokers.has_password(self._place, credentials.address, digest, algorithm))

    def _connect(self) -> Connection:
        try:
            return self._brokers.get(self._place, self._home.address(getattr(self.spec, "vhost", "/")))
        except BrokerUnreachableError:
            self._rest()
            raise
        except NotAuthenticatedError as error:
            whose = "the Cluster's Secret" if self._home.owner else f"the Secret '{self._home.key.name}'"
            raise NotYet("CredentialsRejected", f"{whose} does not open the broker: {error}") from error
        except RefusedError as error:
            raise NotYet(_reason(error), str(error)) from error
        except ValueError as error:  # a name that no URI holds
            raise NotYet("InvalidArgument", str(error)) from error
        except PenstockError as error:
            raise NotYet("BrokerBlocked", str(error)) from error

    def _ask(self, ask: Callable[[], T]) -> T:
        """Ask the broker; first open a virtual host that someone else made, which refuses access at first."""
        try:
            return _asked(ask)
        except BrokerUnreachableError:
            self._rest()
            raise
        except NotYet as refusal:
            if refusal.reason != "AccessRefused":
                raise
        vhost = getattr(self.spec, "vhost", "/")
        admin = self._brokers.get(self._place, self._home.address())
        _asked(lambda: open_vhost(admin, vhost, self._home.account))
        return _asked(ask)

    def _check_acts(self) -> None:
        """Raise Later when another operator may act now: finding out may have taken longer than the Lease."""
        if not self._world.acts():
            raise Later

    def _rest(self) -> None:
        """Leave the broker alone: until its Cluster finds that it answers, or for a while where there is none."""
        if not self._brokers.rest(self._place):
            return
        if self._home.owner is None:
            self._brokers.forget(self._place)
        else:
            self._world.add(self._home.key, 0.0)


def _asked(ask: Callable[[], T]) -> T:
    """Return the broker's answer; raise its refusal as a NotYet."""
    try:
        return ask()
    except AccessRefusedError as error:
        raise NotYet("AccessRefused", str(error)) from error
    except UNREACHABLE as error:
        raise BrokerUnreachableError(str(error)) from error
    except RefusedError as error:
        raise NotYet(_reason(error), str(error)) from error
    except ValueError as error:  # the client cannot write it, for example because it is nested too deeply
        raise NotYet("InvalidArgument", str(error)) from error
    except PenstockError as error:
        raise NotYet("BrokerBlocked", str(error)) from error


def _reason(error: RefusedError) -> str:
    """Return the reason: NotFoundError -> NotFound."""
    return type(error).__name__.removesuffix("Error")
