"""Virtual hosts as a whole, and definitions. A vhost that goes takes the permissions in it along, so that
nobody inherits them in one of the same name."""

from dataclasses import asdict

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import vhost_of
from penstock.metadata.limits import Limits
from penstock.model.errors import FaultError, Thing
from penstock.model.names import vhost_name
from penstock.storage import directory_name
from penstock.v1 import admin_pb2 as admin
from penstock.vhost import definitions


async def list_vhosts(context: Context, caller: Caller, _: admin.ListVhostsRequest) -> admin.ListVhostsResponse:
    """Those the caller may enter; all of them for administrators and monitoring."""
    response = admin.ListVhostsResponse()
    for vhost in context.vhosts.all():
        if caller.user.sees_vhost(vhost.name):
            try:
                ready_count, unsettled_count = vhost.totals()
            except FaultError:
                ready_count = unsettled_count = 0  # one that has stopped hides none of the others
            response.vhosts.add(
                name=vhost.name,
                directory=directory_name(vhost.name),
                ready_count=ready_count,
                unsettled_count=unsettled_count,
            )
    return response


async def create_vhost(
    context: Context, caller: Caller, request: admin.CreateVhostRequest
) -> admin.CreateVhostResponse:
    is_new = await context.vhosts.create(caller.actor(request.name), request.name)
    return admin.CreateVhostResponse(created=is_new)


async def delete_vhost(
    context: Context, caller: Caller, request: admin.DeleteVhostRequest
) -> admin.DeleteVhostResponse:
    name = vhost_name(request.name)
    await context.vhosts.delete(caller.actor(name), name)
    await context.accounts.forget_vhost(name)
    context.quotas.apply()
    context.forget()
    return admin.DeleteVhostResponse()


async def get_vhost_limits(
    context: Context, caller: Caller, request: admin.GetVhostLimitsRequest
) -> admin.GetVhostLimitsResponse:
    name = vhost_of(request.vhost)
    vhost, actor = context.vhosts.get(name), caller.actor(name)
    if not actor.is_administrator:
        actor.require_entry(Thing("vhost", name))
    found = admin.VhostLimits(**asdict(vhost.limits))
    return admin.GetVhostLimitsResponse(
        limits=found, queue_count=vhost.queue_count, connection_count=context.connections.count(name)
    )


async def set_vhost_limits(
    context: Context, caller: Caller, request: admin.SetVhostLimitsRequest
) -> admin.SetVhostLimitsResponse:
    name, wanted = vhost_of(request.vhost), request.limits
    limits = Limits(**{field.name: value for field, value in wanted.ListFields()})
    await context.vhosts.get(name).set_limits(caller.actor(name), limits)
    context.quotas.apply()
    return admin.SetVhostLimitsResponse()


async def export_definitions(
    context: Context, caller: Caller, request: admin.ExportDefinitionsRequest
) -> admin.ExportDefinitionsResponse:
    version = context.node.state().version
    if request.HasField("vhost"):
        name = vhost_of(request.vhost)
        content = await definitions.export_vhost(context.vhosts.get(name), caller.actor(name), version)
    else:
        content = await definitions.export_definitions(
            context.vhosts, context.definitions_users, caller.actor(""), version
        )
    return admin.ExportDefinitionsResponse(json=content)


async def import_definitions(
    context: Context, caller: Caller, request: admin.ImportDefinitionsRequest
) -> admin.ImportDefinitionsResponse:
    into = vhost_of(request.vhost) if request.HasField("vhost") else None
    try:
        added = await definitions.import_definitions(
            context.vhosts, context.definitions_users, caller.actor(into or ""), request.json, into
        )
    finally:
        context.quotas.apply()
        context.recheck()  # also what stopped half-way has changed something
    return admin.ImportDefinitionsResponse(added=added)
