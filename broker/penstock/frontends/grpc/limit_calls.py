"""Limits of users: requests to verbs."""

from penstock.services import Principal, Services
from penstock.v1 import admin_pb2 as admin


async def get_user_limits(
    services: Services, principal: Principal, request: admin.GetUserLimitsRequest
) -> admin.GetUserLimitsResponse:
    found = await services.limits.get_user_limits(principal, request.name)
    return admin.GetUserLimitsResponse(
        limits=admin.UserLimits(**found.limits.by_field()), connection_count=found.connection_count
    )


async def set_user_limits(
    services: Services, principal: Principal, request: admin.SetUserLimitsRequest
) -> admin.SetUserLimitsResponse:
    limits = {field.name: value for field, value in request.limits.ListFields()}
    await services.limits.set_user_limits(principal, request.name, limits)
    return admin.SetUserLimitsResponse()
