"""Users and permissions: requests to verbs."""

from penstock.frontends.native import vhost_of
from penstock.services import HeldPermission, HeldTopicPermission, Principal, Services
from penstock.v1 import admin_pb2 as admin


async def list_users(services: Services, principal: Principal, _: admin.ListUsersRequest) -> admin.ListUsersResponse:
    response = admin.ListUsersResponse()
    for user in await services.users.list_users(principal):
        response.users.add(name=user.name, tags=user.tags)
    return response


async def put_user(services: Services, principal: Principal, request: admin.PutUserRequest) -> admin.PutUserResponse:
    password = request.password if request.HasField("password") else None
    tags = None if request.keep_tags else list(request.tags)
    is_new = await services.users.put_user(
        principal, request.name, password, tags, force=request.force, is_random=request.random_password
    )
    return admin.PutUserResponse(created=is_new)


async def delete_user(
    services: Services, principal: Principal, request: admin.DeleteUserRequest
) -> admin.DeleteUserResponse:
    await services.users.delete_user(principal, request.name, force=request.force)
    return admin.DeleteUserResponse()


async def list_permissions(
    services: Services, principal: Principal, request: admin.ListPermissionsRequest
) -> admin.ListPermissionsResponse:
    user = request.user if request.HasField("user") else None
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    response = admin.ListPermissionsResponse()
    for held in await services.users.list_permissions(principal, user=user, vhost=vhost):
        response.permissions.add(
            user=held.user, vhost=held.vhost, configure=held.configure, write=held.write, read=held.read
        )
    return response


async def set_permission(
    services: Services, principal: Principal, request: admin.SetPermissionRequest
) -> admin.SetPermissionResponse:
    wanted = request.permission
    permission = HeldPermission(wanted.user, vhost_of(wanted.vhost), wanted.configure, wanted.write, wanted.read)
    await services.users.set_permission(principal, permission)
    return admin.SetPermissionResponse()


async def delete_permission(
    services: Services, principal: Principal, request: admin.DeletePermissionRequest
) -> admin.DeletePermissionResponse:
    await services.users.delete_permission(principal, request.user, vhost_of(request.vhost))
    return admin.DeletePermissionResponse()


async def list_topic_permissions(
    services: Services, principal: Principal, request: admin.ListTopicPermissionsRequest
) -> admin.ListTopicPermissionsResponse:
    user = request.user if request.HasField("user") else None
    vhost = vhost_of(request.vhost) if request.HasField("vhost") else None
    response = admin.ListTopicPermissionsResponse()
    for held in await services.users.list_topic_permissions(principal, user=user, vhost=vhost):
        response.permissions.add(
            user=held.user, vhost=held.vhost, exchange=held.exchange, write=held.write, read=held.read
        )
    return response


async def set_topic_permission(
    services: Services, principal: Principal, request: admin.SetTopicPermissionRequest
) -> admin.SetTopicPermissionResponse:
    wanted = request.permission
    permission = HeldTopicPermission(wanted.user, vhost_of(wanted.vhost), wanted.exchange, wanted.write, wanted.read)
    await services.users.set_topic_permission(principal, permission)
    return admin.SetTopicPermissionResponse()


async def delete_topic_permission(
    services: Services, principal: Principal, request: admin.DeleteTopicPermissionRequest
) -> admin.DeleteTopicPermissionResponse:
    exchange = request.exchange if request.HasField("exchange") else None
    await services.users.delete_topic_permission(principal, request.user, vhost_of(request.vhost), exchange)
    return admin.DeleteTopicPermissionResponse()


async def refresh_token(
    services: Services, principal: Principal, _: admin.RefreshTokenRequest
) -> admin.RefreshTokenResponse:
    """Renew the token of the connection's streams. The newer one is the one that this very call came with."""
    return admin.RefreshTokenResponse(expires_at_ms=await services.sessions.renew_token(principal))
