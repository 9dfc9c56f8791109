"""Values keep their type from the wire and back."""

from hypothesis import given

from penstock.frontends.grpc.convert import arguments_of, put_arguments
from penstock.model.arguments import freeze_arguments
from penstock.v1 import admin_pb2 as admin
from support.changes import arguments


@given(arguments)
def test_arguments_come_back_with_their_types(fields):
    queue = admin.Queue()
    put_arguments(fields, queue.arguments)
    sent = admin.Queue.FromString(queue.SerializeToString())

    assert freeze_arguments(arguments_of(sent.arguments)) == freeze_arguments(fields)
