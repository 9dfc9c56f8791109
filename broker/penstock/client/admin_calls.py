"""The calls of administration and topology, without I/O: `steps` says how a connection drives them."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from google.protobuf.message import Message

from penstock.client.errors import NotFoundError
from penstock.client.records import (
    BackupPart,
    BegunBackup,
    Binding,
    Consumer,
    Corruption,
    DeclaredQueue,
    Exchange,
    ImportedDefinitions,
    OpenConnection,
    Permission,
    Queue,
    Recovery,
    Status,
    TopicPermission,
    User,
    Vhost,
)
from penstock.client.steps import Steps, ask
from penstock.client.values import Value, read_table, write_table
from penstock.v1 import admin_pb2, backup_pb2

__all__ = [
    "backup",
    "begin_backup",
    "bind",
    "call",
    "close_connection",
    "create_vhost",
    "declare_exchange",
    "declare_queue",
    "delete_exchange",
    "delete_permission",
    "delete_queue",
    "delete_topic_permission",
    "delete_user",
    "delete_vhost",
    "end_backup",
    "export_definitions",
    "get_queue",
    "import_definitions",
    "is_last_page",
    "list_bindings",
    "list_connections",
    "list_consumers",
    "list_exchanges",
    "list_permissions",
    "list_queues",
    "list_topic_permissions",
    "list_users",
    "list_vhosts",
    "make_binding",
    "make_exchange",
    "make_queue",
    "purge_queue",
    "put_user",
    "set_default_queue_type",
    "set_permission",
    "set_topic_permission",
    "set_vhost_shards",
    "status",
    "unbind",
]

R = TypeVar("R", bound=Message)

SERVICE = "/penstock.v1.AdminService/"
KINDS = {"queue": admin_pb2.DESTINATION_KIND_QUEUE, "exchange": admin_pb2.DESTINATION_KIND_EXCHANGE}


class _Paged(Protocol):
    next_page_token: str


def make_queue(
    name: str, durable: bool, exclusive: bool, auto_delete: bool, arguments: Mapping[str, Value] | None
) -> admin_pb2.Queue:
    queue = admin_pb2.Queue(name=name, durable=durable, exclusive=exclusive, auto_delete=auto_delete)
    write_table(arguments or {}, queue.arguments)
    return queue


def declare_queue(vhost: str, queue: admin_pb2.Queue) -> Steps[DeclaredQueue]:
    request = admin_pb2.DeclareQueueRequest(vhost=vhost, queue=queue)
    answer = yield from call("DeclareQueue", request, admin_pb2.DeclareQueueResponse)
    return DeclaredQueue(answer.name, answer.ready_count, answer.consumer_count)


def delete_queue(vhost: str, name: str, if_unused: bool, if_empty: bool) -> Steps[int]:
    request = admin_pb2.DeleteQueueRequest(vhost=vhost, name=name, if_unused=if_unused, if_empty=if_empty)
    answer = yield from call("DeleteQueue", request, admin_pb2.DeleteQueueResponse)
    return answer.dropped_count


def purge_queue(vhost: str, name: str) -> Steps[int]:
    request = admin_pb2.PurgeQueueRequest(vhost=vhost, name=name)
    answer = yield from call("PurgeQueue", request, admin_pb2.PurgeQueueResponse)
    return answer.dropped_count


def get_queue(vhost: str, name: str) -> Steps[Queue]:
    request = admin_pb2.ListQueuesRequest(vhost=vhost, name=name)
    answer = yield from call("ListQueues", request, admin_pb2.ListQueuesResponse)
    if not answer.queues:
        raise NotFoundError(f"no queue '{name}' in vhost '{vhost}'; declare it first")
    return _queue(answer.queues[0])


def list_queues(vhost: str) -> Steps[list[Queue]]:
    request = admin_pb2.ListQueuesRequest(vhost=vhost)
    found: list[Queue] = []
    while True:
        answer = yield from call("ListQueues", request, admin_pb2.ListQueuesResponse)
        found += map(_queue, answer.queues)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def make_exchange(
    name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: Mapping[str, Value] | None
) -> admin_pb2.Exchange:
    exchange = admin_pb2.Exchange(name=name, type=kind, durable=durable, auto_delete=auto_delete, internal=internal)
    write_table(arguments or {}, exchange.arguments)
    return exchange


def declare_exchange(vhost: str, exchange: admin_pb2.Exchange) -> Steps[None]:
    request = admin_pb2.DeclareExchangeRequest(vhost=vhost, exchange=exchange)
    yield from call("DeclareExchange", request, admin_pb2.DeclareExchangeResponse)


def delete_exchange(vhost: str, name: str, if_unused: bool) -> Steps[None]:
    request = admin_pb2.DeleteExchangeRequest(vhost=vhost, name=name, if_unused=if_unused)
    yield from call("DeleteExchange", request, admin_pb2.DeleteExchangeResponse)


def list_exchanges(vhost: str) -> Steps[list[Exchange]]:
    request = admin_pb2.ListExchangesRequest(vhost=vhost)
    found: list[Exchange] = []
    while True:
        answer = yield from call("ListExchanges", request, admin_pb2.ListExchangesResponse)
        found += map(_exchange, answer.exchanges)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def make_binding(
    kind: str, destination: str, source: str, routing_key: str, arguments: Mapping[str, Value] | None
) -> admin_pb2.Binding:
    """`kind` is what the destination is: queue or exchange."""
    binding = admin_pb2.Binding(
        source=source, destination_kind=KINDS[kind], destination=destination, routing_key=routing_key
    )
    write_table(arguments or {}, binding.arguments)
    return binding


def bind(vhost: str, binding: admin_pb2.Binding) -> Steps[None]:
    yield from call("Bind", admin_pb2.BindRequest(vhost=vhost, binding=binding), admin_pb2.BindResponse)


def unbind(vhost: str, binding: admin_pb2.Binding) -> Steps[None]:
    yield from call("Unbind", admin_pb2.UnbindRequest(vhost=vhost, binding=binding), admin_pb2.UnbindResponse)


def list_bindings(vhost: str, source: str | None, destination: str | None) -> Steps[list[Binding]]:
    request = admin_pb2.ListBindingsRequest(vhost=vhost, source=source, destination=destination)
    found: list[Binding] = []
    while True:
        answer = yield from call("ListBindings", request, admin_pb2.ListBindingsResponse)
        found += map(_binding, answer.bindings)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def list_connections() -> Steps[list[OpenConnection]]:
    request = admin_pb2.ListConnectionsRequest()
    found: list[OpenConnection] = []
    while True:
        answer = yield from call("ListConnections", request, admin_pb2.ListConnectionsResponse)
        found += (
            OpenConnection(each.id, each.peer, tuple(each.users), tuple(each.vhosts), each.consumer_count)
            for each in answer.connections
        )
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def close_connection(number: int) -> Steps[None]:
    request = admin_pb2.CloseConnectionRequest(id=number)
    yield from call("CloseConnection", request, admin_pb2.CloseConnectionResponse)


def list_consumers(vhost: str) -> Steps[list[Consumer]]:
    request = admin_pb2.ListConsumersRequest(vhost=vhost)
    found: list[Consumer] = []
    while True:
        answer = yield from call("ListConsumers", request, admin_pb2.ListConsumersResponse)
        found += map(_consumer, answer.consumers)
        if is_last_page(request.page_token, answer):
            return found
        request.page_token = answer.next_page_token


def _consumer(found: admin_pb2.Consumer) -> Consumer:
    return Consumer(
        found.queue,
        found.consumer_tag,
        found.user,
        found.connection,
        found.prefetch,
        found.auto_ack,
        found.exclusive,
        found.vhost,
        found.active,
        found.priority,
    )


def list_vhosts() -> Steps[list[Vhost]]:
    answer = yield from call("ListVhosts", admin_pb2.ListVhostsRequest(), admin_pb2.ListVhostsResponse)
    return [
        # An earlier broker has one shard and no default queue type, and does not say so.
        Vhost(
            vhost.name,
            vhost.directory,
            vhost.ready_count,
            vhost.unacked_count,
            vhost.shards or 1,
            vhost.default_queue_type or "classic",
        )
        for vhost in answer.vhosts
    ]


def create_vhost(name: str, shards: int, default_queue_type: str | None) -> Steps[bool]:
    request = admin_pb2.CreateVhostRequest(name=name, shards=shards, default_queue_type=default_queue_type or "")
    answer = yield from call("CreateVhost", request, admin_pb2.CreateVhostResponse)
    return answer.created


def set_vhost_shards(name: str, shards: int) -> Steps[None]:
    request = admin_pb2.SetVhostShardsRequest(name=name, shards=shards)
    yield from call("SetVhostShards", request, admin_pb2.SetVhostShardsResponse)


def set_default_queue_type(name: str, default_queue_type: str) -> Steps[None]:
    request = admin_pb2.SetDefaultQueueTypeRequest(name=name, default_queue_type=default_queue_type)
    yield from call("SetDefaultQueueType", request, admin_pb2.SetDefaultQueueTypeResponse)


def delete_vhost(name: str) -> Steps[None]:
    yield from call("DeleteVhost", admin_pb2.DeleteVhostRequest(name=name), admin_pb2.DeleteVhostResponse)


def list_users() -> Steps[list[User]]:
    answer = yield from call("ListUsers", admin_pb2.ListUsersRequest(), admin_pb2.ListUsersResponse)
    return [User(user.name, tuple(user.tags)) for user in answer.users]


def put_user(
    name: str, password: str | None, tags: tuple[str, ...] | None, force: bool, random_password: bool
) -> Steps[bool]:
    request = admin_pb2.PutUserRequest(
        name=name,
        password=password,
        tags=tags,
        keep_tags=tags is None,
        force=force,
        random_password=random_password,
    )
    answer = yield from call("PutUser", request, admin_pb2.PutUserResponse)
    return answer.created


def delete_user(name: str, force: bool) -> Steps[None]:
    request = admin_pb2.DeleteUserRequest(name=name, force=force)
    yield from call("DeleteUser", request, admin_pb2.DeleteUserResponse)


def list_permissions(user: str | None, vhost: str | None) -> Steps[list[Permission]]:
    request = admin_pb2.ListPermissionsRequest(user=user, vhost=vhost)
    answer = yield from call("ListPermissions", request, admin_pb2.ListPermissionsResponse)
    return [
        Permission(found.user, found.vhost, found.configure, found.write, found.read) for found in answer.permissions
    ]


def set_permission(permission: Permission) -> Steps[None]:
    request = admin_pb2.SetPermissionRequest(
        permission=admin_pb2.Permission(
            user=permission.user,
            vhost=permission.vhost,
            configure=permission.configure,
            write=permission.write,
            read=permission.read,
        )
    )
    yield from call("SetPermission", request, admin_pb2.SetPermissionResponse)


def list_topic_permissions(user: str | None, vhost: str | None) -> Steps[list[TopicPermission]]:
    request = admin_pb2.ListTopicPermissionsRequest(user=user, vhost=vhost)
    answer = yield from call("ListTopicPermissions", request, admin_pb2.ListTopicPermissionsResponse)
    return [
        TopicPermission(found.user, found.vhost, found.exchange, found.write, found.read)
        for found in answer.permissions
    ]


def set_topic_permission(permission: TopicPermission) -> Steps[None]:
    wanted = admin_pb2.TopicPermission(
        user=permission.user,
        vhost=permission.vhost,
        exchange=permission.exchange,
        write=permission.write,
        read=permission.read,
    )
    request = admin_pb2.SetTopicPermissionRequest(permission=wanted)
    yield from call("SetTopicPermission", request, admin_pb2.SetTopicPermissionResponse)


def delete_topic_permission(user: str, vhost: str, exchange: str | None) -> Steps[None]:
    request = admin_pb2.DeleteTopicPermissionRequest(user=user, vhost=vhost, exchange=exchange)
    yield from call("DeleteTopicPermission", request, admin_pb2.DeleteTopicPermissionResponse)


def delete_permission(user: str, vhost: str) -> Steps[None]:
    request = admin_pb2.DeletePermissionRequest(user=user, vhost=vhost)
    yield from call("DeletePermission", request, admin_pb2.DeletePermissionResponse)


def status() -> Steps[Status]:
    answer = yield from call("GetStatus", admin_pb2.GetStatusRequest(), admin_pb2.GetStatusResponse)
    recovery = answer.recovery
    return Status(
        version=answer.version,
        node=answer.node,
        uptime_seconds=answer.uptime_seconds,
        cpu_seconds=answer.cpu_seconds,
        resident_bytes=answer.resident_bytes,
        connection_count=answer.connection_count,
        consumer_count=answer.consumer_count,
        queue_count=answer.queue_count,
        ready_count=answer.ready_count,
        unacked_count=answer.unacked_count,
        published_total=answer.published_total,
        confirmed_total=answer.confirmed_total,
        delivered_total=answer.delivered_total,
        settled_total=answer.settled_total,
        recovery=Recovery(recovery.ms, recovery.bytes_read, recovery.records, recovery.torn_bytes),
        data_dir=answer.data_dir,
        listeners=dict(answer.listeners),
        corruption=tuple(
            Corruption(each.vhost, each.file, each.at, tuple(each.queues), each.records) for each in answer.corruption
        ),
        data_id=answer.data_id,
        data_format=answer.data_format,
    )


def backup(directory: str) -> Steps[int]:
    answer = yield from call("Backup", backup_pb2.BackupRequest(directory=directory), backup_pb2.BackupResponse)
    return answer.bytes


def begin_backup(request_id: str) -> Steps[BegunBackup]:
    request = backup_pb2.BeginBackupRequest(request_id=request_id)
    answer = yield from call("BeginBackup", request, backup_pb2.BeginBackupResponse)
    return BegunBackup(answer.id, answer.bytes, answer.vhost_count, answer.data_id, answer.version)


def read_backup(backup: str, offset: int) -> Steps[BackupPart]:
    request = backup_pb2.ReadBackupRequest(id=backup, offset=offset)
    answer = yield from call("ReadBackup", request, backup_pb2.ReadBackupResponse)
    return BackupPart(answer.content, answer.is_last, answer.sha256)


def end_backup(backup: str) -> Steps[None]:
    yield from call("EndBackup", backup_pb2.EndBackupRequest(id=backup), backup_pb2.EndBackupResponse)


def export_definitions(vhost: str | None) -> Steps[bytes]:
    request = admin_pb2.ExportDefinitionsRequest(vhost=vhost)
    answer = yield from call("ExportDefinitions", request, admin_pb2.ExportDefinitionsResponse)
    return answer.json


def import_definitions(
    document: bytes, vhost: str | None, skip_unsupported: bool, shards: int
) -> Steps[ImportedDefinitions]:
    request = admin_pb2.ImportDefinitionsRequest(
        json=document, vhost=vhost, skip_unsupported=skip_unsupported, shards=shards
    )
    answer = yield from call("ImportDefinitions", request, admin_pb2.ImportDefinitionsResponse)
    return ImportedDefinitions(dict(answer.added), tuple(answer.skipped))


def call(method: str, message: Message, response: type[R]) -> Steps[R]:
    """Make one call of the service for administration."""
    return ask(SERVICE + method, message, response)


def is_last_page(token: str, answer: _Paged) -> bool:
    """Return whether no page comes after this answer."""
    # A token that does not change would page for ever.
    return answer.next_page_token in ("", token)


def _queue(queue: admin_pb2.Queue) -> Queue:
    return Queue(
        name=queue.name,
        durable=queue.durable,
        exclusive=queue.exclusive,
        auto_delete=queue.auto_delete,
        arguments=read_table(queue.arguments),
        ready_count=queue.ready_count,
        unacked_count=queue.unacked_count,
        ready_bytes=queue.ready_bytes,
        unacked_bytes=queue.unacked_bytes,
        consumer_count=queue.consumer_count,
        published_count=queue.published_count,
        delivered_count=queue.delivered_count,
        settled_count=queue.settled_count,
        delayed_count=queue.delayed_count,
        deduplicated_count=queue.deduplicated_count,
        effective_arguments=read_table(queue.effective_arguments),
        policy=queue.policy,
        operator_policy=queue.operator_policy,
    )


def _exchange(exchange: admin_pb2.Exchange) -> Exchange:
    return Exchange(
        name=exchange.name,
        type=exchange.type,
        durable=exchange.durable,
        auto_delete=exchange.auto_delete,
        internal=exchange.internal,
        arguments=read_table(exchange.arguments),
    )


def _binding(binding: admin_pb2.Binding) -> Binding:
    is_exchange = binding.destination_kind == admin_pb2.DESTINATION_KIND_EXCHANGE
    return Binding(
        source=binding.source,
        destination_kind="exchange" if is_exchange else "queue",
        destination=binding.destination,
        routing_key=binding.routing_key,
        arguments=read_table(binding.arguments),
    )
