"""Policies of a vhost. Setting one needs the tag policymaker or administrator, an operator's the tag administrator."""

from penstock.frontends.grpc.caller import Caller
from penstock.frontends.grpc.context import Context
from penstock.frontends.grpc.convert import arguments_of, put_arguments, vhost_of
from penstock.metadata.policies import Policy, make_policy
from penstock.v1 import admin_pb2 as admin


async def list_policies(
    context: Context, caller: Caller, request: admin.ListPoliciesRequest
) -> admin.ListPoliciesResponse:
    name = vhost_of(request.vhost)
    vhost, actor = context.vhosts.get(name), caller.actor(name)
    response = admin.ListPoliciesResponse()
    for policy in await vhost.list_policies(actor, is_operator=request.operator):
        _put_policy(policy, response.policies.add())
    return response


async def set_policy(context: Context, caller: Caller, request: admin.SetPolicyRequest) -> admin.SetPolicyResponse:
    name, wanted = vhost_of(request.vhost), request.policy
    policy = make_policy(
        wanted.name, wanted.pattern, wanted.apply_to or "all", wanted.priority, arguments_of(wanted.definition)
    )
    await context.vhosts.get(name).set_policy(caller.actor(name), policy, is_operator=request.operator)
    context.forget()
    return admin.SetPolicyResponse()


async def clear_policy(
    context: Context, caller: Caller, request: admin.ClearPolicyRequest
) -> admin.ClearPolicyResponse:
    name = vhost_of(request.vhost)
    await context.vhosts.get(name).clear_policy(caller.actor(name), request.name, is_operator=request.operator)
    context.forget()
    return admin.ClearPolicyResponse()


def _put_policy(policy: Policy, into: admin.Policy) -> None:
    into.name, into.pattern = policy.name, policy.pattern
    into.apply_to, into.priority = policy.apply_to.value, policy.priority
    put_arguments(policy.definition, into.definition)
