"""The calls about policies, without I/O: `steps` says how a connection drives them."""

from collections.abc import Mapping

from penstock.client.admin_calls import call
from penstock.client.records import Policy
from penstock.client.steps import Steps
from penstock.client.values import Value, read_table, write_table
from penstock.v1 import admin_pb2

__all__ = ["delete_policy", "list_policies", "set_policy"]


def list_policies(vhost: str, operator: bool) -> Steps[list[Policy]]:
    request = admin_pb2.ListPoliciesRequest(vhost=vhost, operator=operator)
    answer = yield from call("ListPolicies", request, admin_pb2.ListPoliciesResponse)
    return [
        Policy(policy.name, policy.pattern, policy.apply_to, policy.priority, read_table(policy.definition))
        for policy in answer.policies
    ]


def set_policy(vhost: str, policy: Policy, operator: bool) -> Steps[None]:
    request = admin_pb2.SetPolicyRequest(vhost=vhost, operator=operator)
    request.policy.name, request.policy.pattern = policy.name, policy.pattern
    request.policy.apply_to, request.policy.priority = policy.apply_to, policy.priority
    definition: Mapping[str, Value] = policy.definition
    write_table(definition, request.policy.definition)
    yield from call("SetPolicy", request, admin_pb2.SetPolicyResponse)


def delete_policy(vhost: str, name: str, operator: bool) -> Steps[None]:
    request = admin_pb2.DeletePolicyRequest(vhost=vhost, name=name, operator=operator)
    yield from call("DeletePolicy", request, admin_pb2.DeletePolicyResponse)
