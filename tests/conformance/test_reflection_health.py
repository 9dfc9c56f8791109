"""The standard gRPC services, with their own client libraries: reflection and health."""

from collections.abc import Iterator

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from support import Broker

SERVING = health_pb2.HealthCheckResponse.SERVING


@pytest.fixture
def channel(broker: Broker) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(broker.address) as channel:
        yield channel


def test_reflection_lists_the_services(channel: grpc.Channel) -> None:
    services = set(ProtoReflectionDescriptorDatabase(channel).get_services())

    assert {"penstock.v1.MessagingService", "penstock.v1.AdminService", "grpc.health.v1.Health"} <= services


def test_reflection_gives_the_contract_itself(channel: grpc.Channel) -> None:
    database = ProtoReflectionDescriptorDatabase(channel)

    file = database.FindFileContainingSymbol("penstock.v1.MessagingService")

    assert isinstance(file, FileDescriptorProto)
    assert [method.name for method in file.service[0].method] == [
        "Publish",
        "Consume",
        "Get",
        "Peek",
        "Settle",
        "ReserveLease",
        "AckLeases",
        "ReleaseLeases",
        "ListLeases",
    ]


@pytest.mark.parametrize("service", ["", "penstock.v1.MessagingService", "penstock.v1.AdminService"])
def test_the_health_service_answers_serving(channel: grpc.Channel, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(channel)

    answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=5)

    assert answer.status == SERVING


def test_the_health_service_does_not_know_a_service_that_is_not_there(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)

    with pytest.raises(grpc.RpcError) as refused:
        stub.Check(health_pb2.HealthCheckRequest(service="penstock.v1.NoService"), timeout=5)

    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
