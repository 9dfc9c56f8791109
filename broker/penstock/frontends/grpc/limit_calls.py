"""Limits of users. Administrators change them; others see their own."""

from dataclasses import asdict

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.identity.user_limits import UserLimits, check_user_limits
from penstock.identity.users import check_user_name
from penstock.model.errors import Thing
from penstock.v1 import admin_pb2 as admin


async def get_user_limits(
    context: Context, caller: Caller, request: admin.GetUserLimitsRequest
) -> admin.GetUserLimitsResponse:
    """Of anybody whom a back-end may vouch for, known here or not."""
    name = request.name or caller.user.name
    if name != caller.user.name:
        caller.actor("").require_administrator(Thing("limits of user", name))
    limits = context.user_limits.find(name)
    return admin.GetUserLimitsResponse(
        limits=admin.UserLimits(**asdict(limits)), connection_count=context.connections.count_of_user(name)
    )


async def set_user_limits(
    context: Context, caller: Caller, request: admin.SetUserLimitsRequest
) -> admin.SetUserLimitsResponse:
    caller.actor("").require_administrator(Thing("limits of user", request.name))
    check_user_name(request.name)
    wanted = request.limits
    limits = UserLimits(**{field.name: value for field, value in wanted.ListFields()})
    check_user_limits(request.name, limits)
    await context.user_limits.set(request.name, limits)
    context.quotas.apply()
    return admin.SetUserLimitsResponse()
