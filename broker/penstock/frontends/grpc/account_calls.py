"""Users and permissions. Changing them needs the tag administrator; others see themselves alone."""

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import vhost_of
from penstock.identity import Permission, TopicPermission, User
from penstock.model.errors import Thing
from penstock.model.names import exchange_name
from penstock.model.records import Access
from penstock.v1 import admin_pb2 as admin


async def list_users(context: Context, caller: Caller, _: admin.ListUsersRequest) -> admin.ListUsersResponse:
    response = admin.ListUsersResponse()
    for user in _visible(context, caller):
        response.users.add(name=user.name, tags=[tag.value for tag in user.tags])
    return response


async def put_user(context: Context, caller: Caller, request: admin.PutUserRequest) -> admin.PutUserResponse:
    _require_administrator(caller, Thing("user", request.name))
    password = request.password if request.HasField("password") else None
    tags = None if request.keep_tags else list(request.tags)
    is_new = await context.accounts.put_user(request.name, password, tags, force=request.force)
    context.recheck()
    return admin.PutUserResponse(created=is_new)


async def delete_user(context: Context, caller: Caller, request: admin.DeleteUserRequest) -> admin.DeleteUserResponse:
    _require_administrator(caller, Thing("user", request.name))
    await context.accounts.delete_user(request.name, force=request.force)
    await context.user_limits.forget(request.name)
    context.quotas.apply()
    context.recheck()
    return admin.DeleteUserResponse()


async def list_permissions(
    context: Context, caller: Caller, request: admin.ListPermissionsRequest
) -> admin.ListPermissionsResponse:
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    response = admin.ListPermissionsResponse()
    for user in _visible(context, caller):
        if request.HasField("user") and user.name != request.user:
            continue
        for name, held in user.permissions.items():
            if vhost in (None, name):
                response.permissions.append(_permission(user.name, name, held))
    return response


async def set_permission(
    context: Context, caller: Caller, request: admin.SetPermissionRequest
) -> admin.SetPermissionResponse:
    wanted = request.permission
    vhost = vhost_of(wanted.vhost)
    _require_administrator(caller, Thing("permission of user", wanted.user, vhost))
    context.vhosts.get(vhost)
    permission = Permission.compile(wanted.configure, wanted.write, wanted.read)
    await context.accounts.set_permission(wanted.user, vhost, permission)
    context.recheck()
    return admin.SetPermissionResponse()


async def clear_permission(
    context: Context, caller: Caller, request: admin.ClearPermissionRequest
) -> admin.ClearPermissionResponse:
    vhost = vhost_of(request.vhost)
    _require_administrator(caller, Thing("permission of user", request.user, vhost))
    await context.accounts.clear_permission(request.user, vhost)
    context.recheck()
    return admin.ClearPermissionResponse()


async def list_topic_permissions(
    context: Context, caller: Caller, request: admin.ListTopicPermissionsRequest
) -> admin.ListTopicPermissionsResponse:
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    response = admin.ListTopicPermissionsResponse()
    for user in _visible(context, caller):
        if request.HasField("user") and user.name != request.user:
            continue
        for name, topics in user.topics.items():
            for exchange, topic in topics.items() if vhost in (None, name) else ():
                response.permissions.add(
                    user=user.name, vhost=name, exchange=exchange, write=topic.write, read=topic.read
                )
    return response


async def set_topic_permission(
    context: Context, caller: Caller, request: admin.SetTopicPermissionRequest
) -> admin.SetTopicPermissionResponse:
    """The exchange need not be there, nor be a topic exchange: it may become one."""
    wanted = request.permission
    vhost, exchange = vhost_of(wanted.vhost), exchange_name(wanted.exchange)
    _require_administrator(caller, Thing("topic permission of user", wanted.user, vhost))
    context.vhosts.get(vhost)
    topic = TopicPermission.compile(wanted.user, vhost, wanted.write, wanted.read)
    await context.accounts.set_topic(wanted.user, vhost, exchange, topic)
    context.recheck()
    return admin.SetTopicPermissionResponse()


async def clear_topic_permission(
    context: Context, caller: Caller, request: admin.ClearTopicPermissionRequest
) -> admin.ClearTopicPermissionResponse:
    vhost = vhost_of(request.vhost)
    _require_administrator(caller, Thing("topic permission of user", request.user, vhost))
    exchange = request.exchange if request.HasField("exchange") else None
    await context.accounts.clear_topics(request.user, vhost, exchange)
    context.recheck()
    return admin.ClearTopicPermissionResponse()


async def refresh_token(context: Context, caller: Caller, _: admin.RefreshTokenRequest) -> admin.RefreshTokenResponse:
    """The token is the one this very call came with."""
    context.sessions.renewed(caller.connection, caller.user)
    return admin.RefreshTokenResponse(expires_at_ms=caller.user.expires_at_ms or 0)


def _visible(context: Context, caller: Caller) -> list[User]:
    users = context.accounts.users()
    return users if caller.user.is_administrator else [user for user in users if user.name == caller.user.name]


def _require_administrator(caller: Caller, thing: Thing) -> None:
    caller.actor("").require_administrator(thing)


def _permission(user: str, vhost: str, held: Permission) -> admin.Permission:
    return admin.Permission(
        user=user,
        vhost=vhost,
        configure=held.pattern(Access.CONFIGURE),
        write=held.pattern(Access.WRITE),
        read=held.pattern(Access.READ),
    )
