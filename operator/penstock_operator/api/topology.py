"""The kinds of objects in a broker: virtual hosts, queues, streams, exchanges, bindings, policies, users, permissions.

Each names its Cluster, and cannot be moved to another.
"""

from typing import Annotated, Final, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from penstock_operator.api.broker_arguments import EXCHANGE, POLICY, QUEUE, STREAM, ExchangeType
from penstock_operator.api.fields import (
    Arguments,
    Model,
    Name,
    Namespace,
    ObjectName,
    Pattern,
    Values,
    immutable,
    known,
    part,
    rule,
    rules,
)

X_QUEUE_TYPE = "x-queue-type"
X_DELAYED_TYPE: Final = "x-delayed-type"
DELAYED: Final = "x-delayed-message"
NOT_RESERVED = rule("!self.startsWith('amq.')", "names that begin with 'amq.' are the broker's own; choose another")
DeletionPolicy = Literal["Retain", "Delete"]
Declared = dict[str, bool | int | float | str | list[int | str]]
KEPT: Final = "A change is reported as Mismatch."
ARGUMENTS: Final = f"Arguments, also unknown ones of clients. The broker refuses unsupported ones. {KEPT}"
# Fields of a Stream by the names of the arguments that they set.
STREAM_FIELDS: Final = {
    X_QUEUE_TYPE: "kind: Stream",
    "x-max-age": "maxAge",
    "x-max-length-bytes": "maxLengthBytes",
    "x-dedicated": "dedicated",
    "x-partitions": "partitions",
}


class ClusterRef(Model):
    """The Cluster of an object."""

    name: ObjectName
    namespace: Namespace | None = Field(
        None, description="Default: the object's own. The Cluster must allow others in spec.topology."
    )


class SecretRef(Model):
    """A Secret in the object's namespace."""

    name: ObjectName


def _kept(field: str) -> dict[str, str]:
    """Return the rule that an optional field cannot change. One on the field itself is not checked when it goes."""
    return rule(
        f"has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})",
        f"{field} cannot be changed; delete the object and apply it again",
    )


# Rules of all kinds; a kind with rules of its own repeats them, as a model's rules replace those of its base.
OF_ALL: Final = (
    rule(
        "has(self.clusterRef) != has(self.connectionSecretRef)",
        "write one of clusterRef (a Cluster) and connectionSecretRef (a Secret)",
    ),
    _kept("clusterRef"),
    _kept("connectionSecretRef"),
)


class TopologySpec(Model):
    """Fields of all kinds in a broker."""

    model_config = ConfigDict(json_schema_extra=rules(*OF_ALL))

    cluster_ref: ClusterRef | None = Field(None, description="The Cluster that this belongs to.")
    connection_secret_ref: SecretRef | None = Field(
        None, description="Instead of a Cluster: a Secret that leads to a broker that the operator does not run."
    )
    adopt: bool = Field(
        True, description="Take over an existing object of this name on the broker; false: report a conflict."
    )
    prevent_update: bool = Field(
        False, description="Report differences on the broker, also of a password, without correcting them."
    )

    @model_validator(mode="after")
    def _check_references(self) -> Self:
        if (self.cluster_ref is None) == (self.connection_secret_ref is None):
            raise ValueError("write one of clusterRef and connectionSecretRef")
        return self


class RetainedSpec(TopologySpec):
    """Kinds with messages: they stay on the broker unless the manifest says otherwise."""

    deletion_policy: DeletionPolicy = Field(
        "Retain", description="Whether deleting this object deletes it on the broker."
    )


class DroppedSpec(TopologySpec):
    """Kinds without messages: they are deleted with their object."""

    deletion_policy: DeletionPolicy = Field(
        "Delete", description="Whether deleting this object deletes it on the broker."
    )


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Shards = Annotated[int, Field(ge=1, le=64)]
Rate = Annotated[int, Field(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=1, le=2**53)]
NO_LIMIT: Final = "No limit when absent."


class Limits(Model):
    """Limits. Existing connections and queues above a new limit stay."""

    max_connections: Count | None = Field(None, description=NO_LIMIT)
    publish_rate: Rate | None = Field(None, description=f"Messages a second; faster publishers are paused. {NO_LIMIT}")
    publish_bytes_rate: Bytes | None = Field(
        None, description=f"Bytes a second; faster publishers are paused. {NO_LIMIT}"
    )
    max_in_flight_bytes: Bytes | None = Field(
        None, description=f"Unconfirmed bytes, and separately unacked bytes. {NO_LIMIT}"
    )
    max_message_bytes: Bytes | None = Field(None, description=f"Maximum size of a message. {NO_LIMIT}")

    def on_broker(self) -> dict[str, int | None]:
        """Return the limits by the broker's names."""
        turned = ((name.removeprefix("max_"), name.startswith("max_"), value) for name, value in self)
        return {f"{name}_max" if is_most else name: value for name, is_most, value in turned}


class VHostLimits(Limits):
    """Limits of a virtual host."""

    max_queues: Count | None = Field(None, description=NO_LIMIT)


class UserLimits(Limits):
    """Limits of a user."""

    max_streams: Count | None = Field(None, description=f"Open streams that publish or consume. {NO_LIMIT}")


class VHostSpec(RetainedSpec):
    """A virtual host."""

    name: Name = immutable("name", description="Its name on the broker.")
    shards: Shards | None = Field(
        None,
        description="Logs that its queues share, each with syncs and a lock of its own; 1 when absent. It only grows.",
        json_schema_extra=rules(rule("self >= oldSelf", "shards can only grow; a queue stays in its shard")),
    )
    default_queue_type: Literal["classic", "quorum", "stream"] | None = Field(
        None,
        description="Type of the durable queues that programs declare without one. When absent, it is left as it is,"
        " and classic in a new virtual host. Queues that exist keep their type.",
    )
    limits: VHostLimits = part(VHostLimits)


class QueueSpec(RetainedSpec):
    """A queue, or a stream."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *OF_ALL,
            rule(
                "self.type == 'classic' || (self.durable && !self.autoDelete)",
                "quorum queues and streams are always durable and never auto-delete; leave durable and autoDelete out",
            ),
        )
    )

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    name: Name = immutable("name", extra_rules=[NOT_RESERVED], description="Its name on the broker.")
    type: Literal["classic", "quorum", "stream"] = immutable(
        "type",
        default="classic",
        description="A quorum queue is durable, and has a delivery limit of 20. A stream keeps messages after they are"
        " read. Its retention is set by the arguments x-max-age and x-max-length-bytes, or by a Policy for streams.",
    )
    durable: bool = immutable("durable", default=True, description="Whether it survives a restart of the broker.")
    auto_delete: bool = immutable(
        "autoDelete", default=False, description="Whether it is deleted with its last consumer."
    )
    arguments: Values = known(QUEUE, ARGUMENTS)
    delete_if_empty: bool = Field(False, description="With deletionPolicy Delete: wait until it is empty.")
    delete_if_unused: bool = Field(False, description="With deletionPolicy Delete: wait until it has no consumer.")

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        if self.type != "classic" and X_QUEUE_TYPE in self.arguments:
            raise ValueError(f"write the type once: leave '{X_QUEUE_TYPE}' out of arguments")
        return self

    def declared(self) -> Declared:
        """Return the arguments as the broker has them, without the type of a classic queue."""
        arguments = {name: value for name, value in self.arguments.items() if name != X_QUEUE_TYPE}
        kind = self.arguments.get(X_QUEUE_TYPE, self.type)
        return {**arguments, **({X_QUEUE_TYPE: kind} if kind != "classic" else {})}


class StreamSpec(RetainedSpec):
    """A stream, which keeps its messages after they are read, in one partition or several."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    name: Name = immutable("name", extra_rules=[NOT_RESERVED], description="Its name on the broker.")
    partitions: int = immutable(
        "partitions",
        default=1,
        ge=1,
        le=1_000,
        description="Number of partitions. Messages with the same key are in the same one.",
    )
    max_age: Annotated[str, Field(max_length=16, pattern="^[0-9]+[YMDhms]$")] | None = Field(
        None, description=f"Drop older messages: a number and a unit of Y, M, D, h, m or s. {KEPT}"
    )
    max_length_bytes: Bytes | None = Field(
        None, description=f"Drop the oldest messages of a partition beyond this size. {KEPT}"
    )
    dedicated: bool = Field(False, description=f"Whether each partition has a log of its own. {KEPT}")
    arguments: Values = known(STREAM, f"More arguments. {ARGUMENTS}")

    @model_validator(mode="after")
    def _check_arguments(self) -> Self:
        for name, field in STREAM_FIELDS.items():
            if name in self.arguments:
                raise ValueError(f"write '{field}' instead of '{name}' in arguments")
        return self

    def declared(self) -> Declared:
        """Return the arguments as the broker has them, without those that say that it is a stream."""
        named = {
            "x-max-age": self.max_age,
            "x-max-length-bytes": self.max_length_bytes,
            "x-dedicated": self.dedicated or None,
        }
        return {**self.arguments, **{name: value for name, value in named.items() if value is not None}}


class ExchangeSpec(DroppedSpec):
    """An exchange."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *OF_ALL,
            rule(
                f"self.type != '{DELAYED}' || has(self.arguments.x__dash__delayed__dash__type)",
                f"write '{X_DELAYED_TYPE}' into arguments, such as direct: the type by which it routes",
            ),
        )
    )

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    name: Name = immutable("name", extra_rules=[NOT_RESERVED], description="Its name on the broker.")
    type: ExchangeType = immutable("type", default="direct", description="How it matches messages to bindings.")
    durable: bool = immutable("durable", default=True, description="Whether it survives a restart of the broker.")
    auto_delete: bool = immutable(
        "autoDelete", default=False, description="Whether it is deleted with its last binding."
    )
    internal: bool = immutable("internal", default=False, description="Whether only other exchanges may publish to it.")
    arguments: Values = known(EXCHANGE, ARGUMENTS)

    @model_validator(mode="after")
    def _check_delayed_type(self) -> Self:
        if self.type == DELAYED and X_DELAYED_TYPE not in self.arguments:
            raise ValueError(f"write '{X_DELAYED_TYPE}' into arguments, such as direct: the type by which it routes")
        return self


class BindingSpec(DroppedSpec):
    """A binding from an exchange to a queue or another exchange."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    source: Name = immutable("source", description="The exchange to bind to.")
    destination: Name = immutable("destination", description="The queue or exchange that receives the messages.")
    destination_type: Literal["queue", "exchange"] = immutable(
        "destinationType", default="queue", description="Type of the destination."
    )
    routing_key: Annotated[str, Field(max_length=255)] = immutable(
        "routingKey",
        default="",
        description="A routing key, a pattern of a topic exchange, or a weight of an x-consistent-hash exchange.",
    )
    arguments: Arguments = immutable(
        "arguments", default_factory=dict, description="For headers exchanges: x-match and headers."
    )


class PolicySpec(DroppedSpec):
    """A policy: settings for all queues or exchanges whose name matches a pattern."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is for.")
    name: Name = immutable("name", description="Its name on the broker.")
    operator: bool = immutable(
        "operator", default=False, description="Whether it is an operator policy, which bounds all others."
    )
    pattern: Pattern = Field(min_length=1, description="A regular expression that may match anywhere in a name.")
    apply_to: Literal["all", "queues", "exchanges", "classic_queues", "quorum_queues", "streams"] = Field(
        "all", description="The objects that the pattern applies to."
    )
    priority: int = Field(
        0, ge=-128, le=127, description="Of several matching policies, the one with the highest priority applies."
    )
    definition: Values = known(POLICY, "Keys and values. The broker refuses other keys by name.", is_required=True)


UserTag = Literal["administrator", "monitoring", "management", "policymaker", "impersonator"]


class UserSpec(DroppedSpec):
    """A user. The password is in a Secret, either generated or named here."""

    name: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^:\x00-\x1f]+$")] = immutable(
        "name",
        extra_rules=[
            rule("self != 'guest'", "guest can log in only from the broker's own machine; choose another"),
            rule("self != 'admin'", "admin is the operator's own account; choose another"),
        ],
        description="The name to log in with.",
    )
    tags: Annotated[list[UserTag], Field(max_length=8)] = Field(
        default_factory=list,
        description="Tags of the user.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    limits: UserLimits = part(UserLimits)
    import_credentials_secret: SecretRef | None = Field(
        None,
        description="A Secret with the key `password`, which gets the label `penstock.dev/cluster`. A changed password"
        " takes effect at once.",
    )


class GrantSpec(DroppedSpec):
    """Fields of what a user is granted in a virtual host."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *OF_ALL,
            rule("has(self.user) != has(self.userRef)", "write one of user (a name) and userRef (a User object)"),
            rule("!has(self.user) || self.user != 'admin'", "admin is the operator's own account; choose another"),
            rule(
                "has(self.user) == has(oldSelf.user) && (!has(self.user) || self.user == oldSelf.user)",
                "user cannot be changed; delete the object and apply it again",
            ),
            rule(
                "has(self.userRef) == has(oldSelf.userRef)"
                " && (!has(self.userRef) || self.userRef.name == oldSelf.userRef.name)",
                "userRef cannot be changed; delete the object and apply it again",
            ),
        )
    )

    user: Name | None = Field(None, description="A user by name on the broker.")
    user_ref: SecretRef | None = Field(None, description="A User object in this namespace.")
    vhost: Name = immutable("vhost", default="/", description="The virtual host it is for.")


class PermissionSpec(GrantSpec):
    """Permissions of a user in a virtual host: regular expressions that must match a whole name."""

    configure: Pattern = Field("", description="Names that the user may declare and delete. Empty: none.")
    write: Pattern = Field("", description="Names that the user may publish to. Empty: none.")
    read: Pattern = Field("", description="Names that the user may consume from. Empty: none.")


class TopicPermissionSpec(GrantSpec):
    """Routing keys of a topic exchange that a user may use: regular expressions that must match a whole key."""

    exchange: Name = immutable("exchange", description="The topic exchange.")
    write: Pattern = Field("", description="Keys that the user may publish with. Empty: none.")
    read: Pattern = Field("", description="Keys that the user may bind with. Empty: none.")
