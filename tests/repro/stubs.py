"""All services over one connection, as one user, and what scripts publish with them."""

import base64
import threading

import grpc

from penstock.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    message_pb2,
    messaging_pb2,
    messaging_pb2_grpc,
    staging_pb2_grpc,
    streams_pb2_grpc,
)


class Stubs:
    """The services over one connection, as one user."""

    def __init__(self, channel, authorization=""):
        self.channel = channel
        self.metadata = [("authorization", authorization)] if authorization else []
        self._admin = admin_pb2_grpc.AdminServiceStub(channel)
        self._messaging = messaging_pb2_grpc.MessagingServiceStub(channel)
        self._streams = streams_pb2_grpc.StreamServiceStub(channel)
        self._staging = staging_pb2_grpc.StagingServiceStub(channel)

    def __getattr__(self, method):
        for stub in (self._admin, self._messaging, self._streams, self._staging):
            if hasattr(stub, method):
                found = getattr(stub, method)
                return lambda request, seconds=20.0: found(request, metadata=self.metadata, timeout=seconds)
        raise AttributeError(method)

    def code(self, method, request, seconds=20.0):
        """How a call ends: OK or the name of the status."""
        try:
            getattr(self, method)(request, seconds)
        except grpc.RpcError as refused:
            return str(refused.code().name)
        return "OK"

    def publish(self, *batches, producer=""):
        """Return the answers of one stream: confirmed, returned and rejected, until every message is answered."""
        wanted = sum(len(batch.messages) for batch in batches)
        done = threading.Event()

        def requests():
            yield messaging_pb2.PublishRequest(open=messaging_pb2.PublishOpen(producer=producer))
            for batch in batches:
                yield messaging_pb2.PublishRequest(batch=batch)
            done.wait(20)

        answers, answered = [], 0
        stream = self.Publish(requests())
        try:
            while answered < wanted:
                answer = next(stream)
                answers.append(answer)
                answered += sum(part.last - part.first + 1 for part in (*answer.confirmed, *answer.rejected))
                answered += len(answer.returned)
        finally:
            done.set()
            stream.cancel()
        return answers

    def put_user(self, name, password="x", tags=(), pattern=".*"):
        """With `pattern` for everything in "/"; None gives no permission."""
        self.PutUser(admin_pb2.PutUserRequest(name=name, password=password, tags=tags))
        if pattern is not None:
            permission = admin_pb2.Permission(user=name, vhost="/", configure=pattern, write=pattern, read=pattern)
            self.SetPermission(admin_pb2.SetPermissionRequest(permission=permission))

    def declare(self, name, exchange=""):
        """Declare a queue, and an exchange of its own that everything goes through to it."""
        self.DeclareQueue(admin_pb2.DeclareQueueRequest(queue=admin_pb2.Queue(name=name, durable=True)))
        if exchange:
            made = admin_pb2.Exchange(name=exchange, type="fanout", durable=True)
            self.DeclareExchange(admin_pb2.DeclareExchangeRequest(exchange=made))
            self.Bind(admin_pb2.BindRequest(binding=admin_pb2.Binding(source=exchange, destination=name)))

    def counts(self, name):
        """Ready and unsettled."""
        (queue,) = self.ListQueues(admin_pb2.ListQueuesRequest(name=name)).queues
        return queue.ready_count, queue.unacked_count


def batch(key, *bodies, exchange="", sequence=0, **properties):
    """For the queue of that name when it goes through no exchange."""
    held = message_pb2.Properties(**properties) if properties else None
    messages = [messaging_pb2.Message(body=body, properties=held) for body in bodies]
    return messaging_pb2.PublishBatch(exchange=exchange, routing_key=key, messages=messages, producer_sequence=sequence)


def confirmed(answers):
    return sum(part.last - part.first + 1 for answer in answers for part in answer.confirmed)


def reasons(answers):
    """Why messages were rejected."""
    return "; ".join(part.reason for answer in answers for part in answer.rejected)


def basic(name, password):
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


GUEST = basic("guest", "guest")
