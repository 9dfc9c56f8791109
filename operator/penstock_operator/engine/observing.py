"""Observes a Cluster: its pods and volumes, what clients reach, and what its broker answers.

The broker is asked over a new connection by the Service's name, as a client that arrives now would be.
"""

from typing import Any, Final

from penstock.client.errors import NotAuthenticatedError, RefusedError
from penstock_operator.desired import Owner, Plan
from penstock_operator.desired.cluster_status import BrokerFacts, Seen, is_pod_ready
from penstock_operator.desired.conditions import Says
from penstock_operator.desired.naming import ADMINISTRATOR, GRPC_PORT
from penstock_operator.engine.administrator import passwords
from penstock_operator.engine.claims import taker
from penstock_operator.engine.home import Home, NotYet, certificate_problem, enter, own_certificate_problem
from penstock_operator.engine.world import World
from penstock_operator.links import ApiError, BrokerUnreachableError
from penstock_operator.links.certificates import UntrustedError

Manifest = dict[str, Any]
Problem = tuple[str, str]
FORBIDDEN: Final = 403


def look(world: World, owner: Owner) -> list[Seen]:
    """Return every broker of the Cluster with its pod and its volume."""
    return [
        Seen(
            ordinal,
            world.kubernetes.read("v1", "Pod", owner.namespace, owner.pod(ordinal)),
            world.kubernetes.read("v1", "PersistentVolumeClaim", owner.namespace, owner.claim(ordinal)),
        )
        for ordinal in owner.ordinals
    ]


def is_running(brokers: list[Seen]) -> bool:
    return any(each.pod is not None and is_pod_ready(each.pod) for each in brokers)


def ask(world: World, owner: Owner, plan: Plan) -> tuple[BrokerFacts | None, Problem | None, Says | None]:
    """Return the broker's answer or why there is none, and the state of the administrator's password."""
    try:
        home, known = enter(world, owner), passwords(world, owner)
        for password, is_secrets in known.items():
            found = _answer(world, home, password)
            if found is not None:
                return found, None, _accept(world, owner, plan, password, is_secrets=is_secrets)
    except NotYet as reason:
        return None, (reason.reason, str(reason)), None
    except BrokerUnreachableError as error:
        world.brokers.forget(owner.host)
        return None, ("BrokerUnreachable", str(error)), None
    except RefusedError as error:
        return None, ("BrokerRefused", str(error)), None
    return None, ("CredentialsRejected", _rejected(world, owner, plan)), None


def _answer(world: World, home: Home, password: str) -> BrokerFacts | None:
    """Return the broker's answer; None when it does not accept the password."""
    try:
        found = world.brokers.ask(home.place, home.address(password=password), lambda broker: broker.admin.status())
    except NotAuthenticatedError:
        return None
    corruption = tuple(f"{each.file} in vhost '{each.vhost}': {each.records} records" for each in found.corruption)
    return BrokerFacts(found.version, corruption, found.data_id)


def _accept(world: World, owner: Owner, plan: Plan, password: str, *, is_secrets: bool) -> Says:
    """Remember the password, so that objects in the broker are reconciled with it, and report it."""
    place = (owner.namespace, owner.name)
    if world.accepted.get(place, password) != password:
        world.brokers.forget(owner.host)
    world.accepted[place] = password
    if is_secrets:
        return Says("PasswordSynced", "True", "Synced")
    return Says("PasswordSynced", "False", "PasswordPending", _pending(owner, plan))


def _pending(owner: Owner, plan: Plan) -> str:
    if plan.has_password_file:
        return f"the broker has not read the new password in the Secret '{owner.secret}' yet; it takes a minute or two"
    return (
        f"this image reads the password only once, and the Secret '{owner.secret}' has another one; put the password"
        f" back that the broker began with, or set the Secret's password with `penstock user set-password`"
    )


def _rejected(world: World, owner: Owner, plan: Plan) -> str:
    by = taker(world, owner)
    if by is not None:
        taken = f"User '{by.name}' in namespace '{by.namespace}' took the account; delete it. "
        return taken + _remedy(owner, plan)
    return _remedy(owner, plan)


def _remedy(owner: Owner, plan: Plan) -> str:
    if plan.has_password_file:
        return (
            f"the broker refuses the password in the Secret '{owner.secret}'; it reads a changed one within a minute or"
            f" two, and sets user '{ADMINISTRATOR}' back to it"
        )
    return f"the Secret '{owner.secret}' does not open this broker; put the password back that it began with"


def ask_certificate(world: World, owner: Owner, *, is_served: bool) -> Says | None:
    """Check the Secrets of certificates, and the certificate that the broker serves if it runs."""
    if owner.spec.tls is None:
        return None
    problem = certificate_problem(world, owner) or own_certificate_problem(world, owner)
    if problem is not None:
        return Says("TLSValid", "False", problem.reason, str(problem))
    if not is_served:
        return None
    try:
        tls = enter(world, owner).tls
        assert tls is not None
        until = world.good_until(owner.host, GRPC_PORT, tls)
    except UntrustedError as error:
        return Says("TLSValid", "False", "Untrusted", f"{error}; renew the Secret '{owner.spec.tls.secret_name}'")
    except (OSError, NotYet) as error:
        return Says("TLSValid", "Unknown", "NotSeen", str(error))
    return Says("TLSValid", "True", "Valid", f"until {until}")


def has_endpoint(world: World, owner: Owner) -> bool | None:
    """Return whether the Service leads to a ready pod; None where an older chart grants no access to that."""
    selector = f"kubernetes.io/service-name={owner.name}"
    try:
        slices = world.kubernetes.list("discovery.k8s.io/v1", "EndpointSlice", owner.namespace, selector)
    except ApiError as error:
        if error.code == FORBIDDEN:
            return None
        raise
    return any(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for each in slices
        for endpoint in each.get("endpoints") or []
    )
