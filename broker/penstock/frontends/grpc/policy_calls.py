"""Policies of a virtual host: requests to verbs."""

from penstock.frontends.grpc.convert import arguments_of, put_arguments
from penstock.frontends.native import vhost_of
from penstock.services import Policy, Principal, Services, WantedPolicy
from penstock.v1 import admin_pb2 as admin


async def list_policies(
    services: Services, principal: Principal, request: admin.ListPoliciesRequest
) -> admin.ListPoliciesResponse:
    place = vhost_of(request.vhost)
    response = admin.ListPoliciesResponse()
    for policy in await services.policies.list_policies(principal, place, operator=request.operator):
        _put_policy(policy, response.policies.add())
    return response


async def set_policy(
    services: Services, principal: Principal, request: admin.SetPolicyRequest
) -> admin.SetPolicyResponse:
    wanted = request.policy
    policy = WantedPolicy(
        wanted.name, wanted.pattern, wanted.apply_to or "all", wanted.priority, arguments_of(wanted.definition)
    )
    await services.policies.set_policy(principal, vhost_of(request.vhost), policy, operator=request.operator)
    return admin.SetPolicyResponse()


async def delete_policy(
    services: Services, principal: Principal, request: admin.DeletePolicyRequest
) -> admin.DeletePolicyResponse:
    place = vhost_of(request.vhost)
    await services.policies.delete_policy(principal, place, request.name, operator=request.operator)
    return admin.DeletePolicyResponse()


def _put_policy(policy: Policy, into: admin.Policy) -> None:
    into.name, into.pattern = policy.name, policy.pattern
    into.apply_to, into.priority = policy.apply_to.value, policy.priority
    put_arguments(policy.definition, into.definition)
