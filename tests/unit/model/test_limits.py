"""The table of limits: what the contract, the client and the operator say of them agrees with its rows."""

from dataclasses import fields

import pytest

from penstock.client.records import UserLimits, VhostLimits
from penstock.model.errors import InvalidArgumentError
from penstock.model.limits import RULES, Holder, Limits, check_limits, limits_by_field
from penstock.v1 import admin_pb2
from penstock_operator.api import topology

OF_CLIENTS: dict[Holder, type[VhostLimits | UserLimits]] = {Holder.VHOST: VhostLimits, Holder.USER: UserLimits}
OF_THE_CONTRACT = {Holder.VHOST: admin_pb2.VhostLimits, Holder.USER: admin_pb2.UserLimits}
OF_THE_OPERATOR: dict[Holder, type[topology.Limits]] = {
    Holder.VHOST: topology.VHostLimits,
    Holder.USER: topology.UserLimits,
}
COUNTS = {"queue_count", "connection_count"}


@pytest.mark.parametrize("holder", Holder)
def test_each_row_is_in_the_contract_the_client_and_the_operator(holder: Holder) -> None:
    rows = {name for name, rule in RULES.items() if holder in rule.holders}

    assert {field.name for field in OF_THE_CONTRACT[holder].DESCRIPTOR.fields} == rows
    assert {field.name for field in fields(OF_CLIENTS[holder])} - COUNTS == rows
    assert set(OF_THE_OPERATOR[holder].model_fields) == {of_kubernetes(row) for row in rows}


def of_kubernetes(row: str) -> str:
    """Return the name of a row as Kubernetes writes bounds: first."""
    return f"max_{row.removesuffix('_max')}" if row.endswith("_max") else row


def test_a_limit_of_users_is_refused_for_a_virtual_host() -> None:
    with pytest.raises(InvalidArgumentError, match="limits of vhost '/' have 'streams_max', which is unknown"):
        check_limits(Holder.VHOST, "/", Limits(streams_max=1))
    with pytest.raises(InvalidArgumentError, match=r"limits of user 'anna' have 'queues_max'.*set any of connections_"):
        limits_by_field(Holder.USER, "anna", {"queues_max": 1})


def test_the_listener_gets_the_limits_of_the_flow_and_nothing_else() -> None:
    assert Limits(queues_max=1, connections_max=2, streams_max=3, publish_rate=4).flow() == {
        "streams_max": 3,
        "publish_rate": 4,
    }
