"""Rules for users, their permissions and limits: those of `identity`, with each result as a change."""

from penstock.cluster.meta.changes import MetaChange, UserDeleted, UserLimitsSet, UserPut
from penstock.cluster.meta.commands import (
    DeletePermission,
    DeleteTopicPermissions,
    DeleteUser,
    MetaAnswer,
    PutUser,
    SetPermission,
    SetTopicPermission,
    SetUserLimits,
)
from penstock.cluster.meta.pending import PendingState
from penstock.identity import Permission, TopicPermission, Users
from penstock.identity.users import check_user_name
from penstock.metadata.effects import Done
from penstock.model.limits import NO_LIMITS, Holder, check_limits
from penstock.model.names import exchange_name
from penstock.storage import UserRecord
from penstock.storage.user_records import records_of

_Decided = tuple[MetaAnswer, list[MetaChange]]


def put(state: PendingState, command: PutUser, _: int) -> _Decided:
    """Add or change a user. The answer counts 1 when the user is new."""
    is_new = state.users.find(command.name) is None
    users = state.users.put(command.name, command.tags, command.password_hash, command.algorithm, force=command.force)
    return Done(int(is_new)), _changed(state, users, command.name)


def delete(state: PendingState, command: DeleteUser, _: int) -> _Decided:
    state.users = state.users.delete(command.name, force=command.force)
    state.user_limits.pop(command.name, None)
    return Done(), [UserDeleted(command.name)]


def set_permission(state: PendingState, command: SetPermission, _: int) -> _Decided:
    state.vhost(command.vhost)
    held = command.permission
    permission = Permission.compile(held.configure, held.write, held.read)
    return Done(), _changed(state, state.users.set_permission(command.user, command.vhost, permission), command.user)


def delete_permission(state: PendingState, command: DeletePermission, _: int) -> _Decided:
    return Done(), _changed(state, state.users.delete_permission(command.user, command.vhost), command.user)


def set_topic(state: PendingState, command: SetTopicPermission, _: int) -> _Decided:
    state.vhost(command.vhost)
    exchange = exchange_name(command.exchange)
    topic = TopicPermission.compile(command.user, command.vhost, command.topic.write, command.topic.read)
    return Done(), _changed(state, state.users.set_topic(command.user, command.vhost, exchange, topic), command.user)


def delete_topics(state: PendingState, command: DeleteTopicPermissions, _: int) -> _Decided:
    users = state.users.delete_topics(command.user, command.vhost, command.exchange)
    return Done(), _changed(state, users, command.user)


def set_limits(state: PendingState, command: SetUserLimits, _: int) -> _Decided:
    """Set a user's limits. The user need not be one of this cluster: a token may name it."""
    check_user_name(command.user)
    check_limits(Holder.USER, command.user, command.limits)
    if state.user_limits.get(command.user, NO_LIMITS) == command.limits:
        return Done(0), []
    state.user_limits[command.user] = command.limits
    return Done(), [UserLimitsSet(command.user, command.limits)]


def _changed(state: PendingState, users: Users, name: str) -> list[MetaChange]:
    """Keep the users, and return the change of one, if there is any."""
    before, state.users = _record_of(state.users, name), users
    record = _record_of(users, name)
    return [] if record is None or record == before else [UserPut(record)]


def _record_of(users: Users, name: str) -> UserRecord | None:
    user = users.find(name)
    return None if user is None else records_of(Users([user]))[0]
