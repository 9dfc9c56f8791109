"""The kinds inside a broker: virtual hosts, queues, exchanges, bindings, policies, users and permissions.

Each names its Cluster, and none can be moved to another.
"""

from typing import Annotated, Final, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.fields import (
    Arguments,
    Model,
    Name,
    Namespace,
    ObjectName,
    Passed,
    Pattern,
    immutable,
    part,
    rule,
    rules,
)

X_QUEUE_TYPE = "x-queue-type"
NOT_RESERVED = rule("!self.startsWith('amq.')", "names that begin with 'amq.' are the broker's own; choose another")
DeletionPolicy = Literal["Retain", "Delete"]


class ClusterRef(Model):
    """Which Cluster an object belongs to."""

    name: ObjectName
    namespace: Namespace | None = Field(
        None, description="The object's own when absent. The Cluster must allow others in spec.topology."
    )


class TopologySpec(Model):
    """What all kinds in a broker have."""

    cluster_ref: ClusterRef = immutable("clusterRef", description="The Cluster that this belongs to.")
    adopt: bool = Field(
        True, description="Take over what the broker has under this name already; false: report a conflict instead."
    )
    prevent_update: bool = Field(
        False, description="Only look: what differs on the broker is reported and not repaired."
    )


class RetainedSpec(TopologySpec):
    """Kinds that hold messages: they stay on the broker unless the manifest says otherwise."""

    deletion_policy: DeletionPolicy = Field(
        "Retain", description="What becomes of it on the broker when this object is deleted."
    )


class DroppedSpec(TopologySpec):
    """Kinds without messages: they go with their object."""

    deletion_policy: DeletionPolicy = Field(
        "Delete", description="What becomes of it on the broker when this object is deleted."
    )


Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Rate = Annotated[int, Field(ge=1, le=2**31 - 1)]
Bytes = Annotated[int, Field(ge=1, le=2**53)]
NO_LIMIT: Final = "No limit when absent."


class Limits(Model):
    """What is above a new limit stays."""

    max_connections: Count | None = Field(None, description=NO_LIMIT)
    publish_rate: Rate | None = Field(
        None, description=f"Messages a second; who is faster is not read from for a while. {NO_LIMIT}"
    )
    publish_bytes_rate: Bytes | None = Field(None, description=f"The same in bytes. {NO_LIMIT}")
    max_in_flight_bytes: Bytes | None = Field(
        None, description=f"Bytes received and not confirmed, and as many delivered and not settled. {NO_LIMIT}"
    )
    max_message_bytes: Bytes | None = Field(None, description=f"A larger message is rejected. {NO_LIMIT}")

    def on_broker(self) -> dict[str, int | None]:
        """Return the limits by the broker's names."""
        turned = ((name.removeprefix("max_"), name.startswith("max_"), value) for name, value in self)
        return {f"{name}_max" if is_most else name: value for name, is_most, value in turned}


class VHostLimits(Limits):
    """Of all that happens in a virtual host."""

    max_queues: Count | None = Field(None, description=NO_LIMIT)


class UserLimits(Limits):
    """Of all that a user does."""

    max_streams: Count | None = Field(None, description=f"Open streams that publish or consume. {NO_LIMIT}")


class VHostSpec(RetainedSpec):
    """A virtual host."""

    name: Name = immutable("name", description="Its name on the broker.")
    limits: VHostLimits = part(VHostLimits)


class QueueSpec(RetainedSpec):
    """A queue, or a stream."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                f"self.type == 'classic' || !('{X_QUEUE_TYPE}' in self.arguments)",
                f"write the type once: leave '{X_QUEUE_TYPE}' out of arguments",
            ),
            rule(
                "self.type == 'classic' || (self.durable && !self.autoDelete)",
                "a stream is always durable and never auto-delete; leave durable and autoDelete out",
            ),
        )
    )

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    name: Name = immutable("name", extra_rules=[NOT_RESERVED], description="Its name on the broker.")
    type: Literal["classic", "stream"] = immutable(
        "type",
        default="classic",
        description="A stream is read and not emptied. What it keeps say the arguments x-max-age and"
        " x-max-length-bytes, or a Policy for streams, which may change.",
    )
    durable: bool = immutable("durable", default=True, description="Whether it outlives a restart of the broker.")
    auto_delete: bool = immutable("autoDelete", default=False, description="Whether it goes with its last consumer.")
    arguments: Arguments = immutable(
        "arguments",
        default_factory=dict,
        description="Strings and whole numbers. What the broker does not act upon it refuses.",
    )
    delete_if_empty: bool = Field(False, description="With deletionPolicy Delete: wait until it holds no message.")
    delete_if_unused: bool = Field(False, description="With deletionPolicy Delete: wait until it has no consumer.")

    def declared(self) -> dict[str, int | str]:
        """Return the arguments in the broker's form."""
        return {**self.arguments, **({X_QUEUE_TYPE: self.type} if self.type == "stream" else {})}


class ExchangeSpec(DroppedSpec):
    """An exchange."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    name: Name = immutable("name", extra_rules=[NOT_RESERVED], description="Its name on the broker.")
    type: Literal["direct", "fanout", "topic", "headers"] = immutable(
        "type", default="direct", description="How it matches messages with bindings."
    )
    durable: bool = immutable("durable", default=True, description="Whether it outlives a restart of the broker.")
    auto_delete: bool = immutable("autoDelete", default=False, description="Whether it goes with its last binding.")
    internal: bool = immutable("internal", default=False, description="Whether only other exchanges may send to it.")
    arguments: Arguments = immutable(
        "arguments", default_factory=dict, description="Strings and whole numbers, such as alternate-exchange."
    )


class BindingSpec(DroppedSpec):
    """A binding: messages of an exchange that reach a queue or another exchange."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is in.")
    source: Name = immutable("source", description="The exchange whose messages are matched.")
    destination: Name = immutable("destination", description="The queue or exchange that gets them.")
    destination_type: Literal["queue", "exchange"] = immutable(
        "destinationType", default="queue", description="What the destination is."
    )
    routing_key: Annotated[str, Field(max_length=255)] = immutable(
        "routingKey", default="", description="A key, or a pattern where the source is a topic exchange."
    )
    arguments: Arguments = immutable(
        "arguments", default_factory=dict, description="For headers exchanges: x-match and the headers."
    )


class PolicySpec(DroppedSpec):
    """A policy: settings for every queue or exchange whose name a pattern finds itself in."""

    vhost: Name = immutable("vhost", default="/", description="The virtual host it is for.")
    name: Name = immutable("name", description="Its name on the broker.")
    operator: bool = immutable(
        "operator", default=False, description="An operator's policy: it bounds what others may set."
    )
    pattern: Pattern = Field(min_length=1, description="A regular expression that may match anywhere in a name.")
    apply_to: Literal["all", "queues", "exchanges", "classic_queues", "streams"] = Field(
        "all", description="What the pattern is matched with."
    )
    priority: int = Field(0, ge=-128, le=127, description="The highest that matches counts.")
    definition: Passed = Field(description="What it sets. What the broker does not act upon it refuses.")


class SecretRef(Model):
    """A Secret in the object's namespace."""

    name: ObjectName


UserTag = Literal["administrator", "monitoring", "management", "policymaker", "impersonator"]


class UserSpec(DroppedSpec):
    """Somebody who logs in. The password is in a Secret: one that is generated, or one that is named here."""

    name: Annotated[str, Field(min_length=1, max_length=255, pattern=r"^[^:\x00-\x1f]+$")] = immutable(
        "name",
        extra_rules=[rule("self != 'guest'", "guest is accepted from the broker's own machine only; choose another")],
        description="The name to log in with.",
    )
    tags: Annotated[list[UserTag], Field(max_length=8)] = Field(
        default_factory=list,
        description="What the user may do beyond permissions.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    limits: UserLimits = part(UserLimits)
    import_credentials_secret: SecretRef | None = Field(
        None, description="A Secret with the key `password`. A new password there counts at the next look at it."
    )


class PermissionSpec(DroppedSpec):
    """What a user may do in a virtual host: regular expressions that must match a whole name."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule("has(self.user) != has(self.userRef)", "write one of user (a name) and userRef (a User object)"),
            rule(
                "has(self.user) == has(oldSelf.user) && (!has(self.user) || self.user == oldSelf.user)",
                "user cannot be changed; delete the object and apply it anew",
            ),
            rule(
                "has(self.userRef) == has(oldSelf.userRef)"
                " && (!has(self.userRef) || self.userRef.name == oldSelf.userRef.name)",
                "userRef cannot be changed; delete the object and apply it anew",
            ),
        )
    )

    user: Name | None = Field(None, description="A user by name on the broker.")
    user_ref: SecretRef | None = Field(None, description="A User object in this namespace.")
    vhost: Name = immutable("vhost", default="/", description="The virtual host it is for.")
    configure: Pattern = Field("", description="What the user may declare and delete; empty: nothing.")
    write: Pattern = Field("", description="What the user may publish to; empty: nothing.")
    read: Pattern = Field("", description="What the user may consume from; empty: nothing.")
