"""Finds a broker that the operator does not run, by the Secret that an object names in connectionSecretRef.

The connection that was read last is remembered, in memory alone: a namespace that is deleted loses its Secrets before
its objects, whose things are then still deleted on the broker. The author of a Secret chooses where the operator
connects, so that it does so only if its settings allow it.
"""

from typing import Any

from penstock_operator.desired.accounts import Refused
from penstock_operator.desired.connection import Connection, read_connection
from penstock_operator.engine.backlog import Key
from penstock_operator.engine.home import Home, NotYet
from penstock_operator.engine.named_secrets import read_named
from penstock_operator.engine.world import World

Manifest = dict[str, Any]


def connect_by(world: World, secret: Key) -> Home:
    """Return the broker that a Secret leads to. Raises NotYet."""
    _check_allowed(world)
    found = read_named(world, secret.namespace, secret.name)
    if found is None:
        raise NotYet(
            "SecretNotFound",
            f"there is no Secret '{secret.name}' in this namespace; make it with uri, username and password",
        )
    connection = read_connection(secret.name, found.get("data") or {})
    if isinstance(connection, Refused):
        raise NotYet(connection.reason, connection.message)
    known = world.connections.get(secret)
    if known is not None and known != connection:
        world.brokers.forget(place_of(secret))
    world.connections[secret] = connection
    return _home(secret, connection)


def connect_to_leave(world: World, secret: Key) -> Home:
    """Return the broker for a deletion: without the Secret by the connection that was used last. Raises NotYet."""
    try:
        return connect_by(world, secret)
    except NotYet as reason:
        known = world.connections.get(secret)
        if reason.reason != "SecretNotFound" or known is None:
            raise
        return _home(secret, known)


def is_lost(world: World, secret: Key) -> bool:
    """Return whether a missing Secret cannot be made again, because its namespace is being deleted."""
    namespace = world.store.get(Key("Namespace", "", secret.namespace)) or {}
    return "deletionTimestamp" in namespace.get("metadata", {})


def forget_unused(world: World) -> None:
    """Close the connections that no object uses any more."""
    for secret in [each for each in list(world.connections) if not world.store.of_broker(each)]:
        world.connections.pop(secret, None)
        world.brokers.leave(place_of(secret))


def place_of(secret: Key) -> str:
    """Return the place of a broker among the links. No host contains a slash."""
    return f"{secret.namespace}/{secret.name}"


def _home(secret: Key, connection: Connection) -> Home:
    return Home(
        secret,
        place_of(secret),
        connection.endpoint,
        connection.password,
        connection.authority,
        connection.shown,
        connection.user,
    )


def _check_allowed(world: World) -> None:
    if not world.allows_connections:
        raise NotYet(
            "ConnectionSecretsNotAllowed",
            "the operator connects to no brokers that it does not run; set allowConnectionSecrets in its chart, or name"
            " a Cluster",
        )
