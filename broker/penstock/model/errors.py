"""Errors: a refusal rejects what a client asked for, a fault reports a failure of the broker or the machine.

The text of an error is made from its data: the thing, the rule that it broke, and the way out. Front ends translate the
classes to the codes of their protocols; this module knows no protocol.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thing:
    """The subject of an error: a queue, an exchange, a vhost, a user..."""

    kind: str
    name: str
    vhost: str | None = None

    def __str__(self) -> str:
        place = f" in vhost '{self.vhost}'" if self.vhost is not None else ""
        return f"{self.kind} '{self.name}'{place}"


class RefusedError(Exception):
    """The root of all refusals.

    `rule` continues the sentence that the thing's name begins, `way_out` says what to do. `failure` replaces the thing
    and the rule in the text, where a sentence reads better in another order.
    """

    def __init__(self, thing: Thing, rule: str, way_out: str, *, failure: str | None = None) -> None:
        self.failure = failure or f"{thing} {rule}"
        super().__init__(f"{self.failure}; {way_out}")
        self.thing = thing
        self.rule = rule
        self.way_out = way_out

    @property
    def item(self) -> str:
        """The text as one of several in a list, which semicolons separate."""
        return f"{self.failure} ({self.way_out})"


class NotFoundError(RefusedError):
    def __init__(self, thing: Thing, way_out: str = "declare it first or check the name") -> None:
        super().__init__(thing, "not found", way_out)


class AccessRefusedError(RefusedError):
    """The user may not do this; with reserved names and predeclared exchanges, no user may.

    `permission` is the one that the user lacks, and empty when it is about none.
    """

    permission = ""

    @classmethod
    def missing_permission(cls, user: str, permission: str, thing: Thing, way_out: str) -> "AccessRefusedError":
        rule = f"user '{user}' has no {permission}"
        error = cls(thing, rule, way_out, failure=f"{rule} on {thing}")
        error.permission = permission
        return error

    @classmethod
    def access(cls, user: str, thing: Thing, way_out: str) -> "AccessRefusedError":
        return cls(
            thing, f"access refused for user '{user}'", way_out, failure=f"access to {thing} refused for user '{user}'"
        )


class NotAuthenticatedError(RefusedError):
    """The credentials were not accepted. The text does not say why, so that it does not reveal which users exist.

    The answer waits until `due`, in seconds of the event loop, so that its time does not reveal it either.
    """

    def __init__(self, user: str, way_out: str = "check the user name and the password", *, due: float = 0.0) -> None:
        super().__init__(Thing("user", user), "could not be authenticated", way_out)
        self.due = due


class PreconditionFailedError(RefusedError):
    """The state is not the one that the command requires. `field` is empty when no single field is at fault."""

    def __init__(
        self, thing: Thing, rule: str, way_out: str, *, field: str = "", wanted: str = "", found: str = ""
    ) -> None:
        super().__init__(thing, rule, way_out)
        self.field = field
        self.wanted = wanted
        self.found = found

    @classmethod
    def mismatch(cls, thing: Thing, field: str, wanted: str, found: str) -> "PreconditionFailedError":
        there, asked = _with(field, found), _with(field, wanted)
        return cls(
            thing,
            f"already exists {there}, and you asked for it {asked}",
            f"declare it {there}, or delete it first",
            field=field,
            wanted=wanted,
            found=found,
        )


class LockedError(RefusedError):
    """The thing belongs to another connection."""

    def __init__(self, thing: Thing, way_out: str = "use it on the connection that declared it") -> None:
        super().__init__(thing, "is exclusive to another connection", way_out)


class SingleActiveError(LockedError):
    """The active consumer alone gets the messages of the queue."""

    def __init__(self, thing: Thing) -> None:
        RefusedError.__init__(self, thing, "is a quorum queue with a single active consumer", "consume it instead")


class InvalidArgumentError(RefusedError):
    def __init__(self, thing: Thing, rule: str, way_out: str, *, field: str = "") -> None:
        super().__init__(thing, rule, way_out)
        self.field = field


class TooLargeError(RefusedError):
    def __init__(self, thing: Thing, rule: str, *, size: int, size_max: int) -> None:
        super().__init__(thing, rule, f"at most {size_max} are allowed")
        self.size = size
        self.size_max = size_max


class LimitReachedError(RefusedError):
    """A limit on a number of things is reached."""

    def __init__(self, thing: Thing, rule: str, way_out: str = "delete what is not needed", *, limit: int) -> None:
        super().__init__(thing, rule, f"at most {limit} are allowed; {way_out}")
        self.limit = limit


class FaultError(Exception):
    """The root of all faults: the command was valid, and the broker or the machine failed to execute it."""

    def __init__(self, thing: Thing, rule: str, way_out: str) -> None:
        super().__init__(f"{thing} {rule}; {way_out}")
        self.thing = thing
        self.rule = rule
        self.way_out = way_out


class StorageError(FaultError):
    """The disk failed, or its contents are corrupt."""


class CorruptError(StorageError):
    """Contents of the disk are corrupt. A retry fails too, until they are repaired."""


class DiskFullError(StorageError):
    """The disk is full. Nothing was changed, and a later retry may succeed."""


class NotWrittenError(StorageError):
    """The disk refused a change. The file is as it was, after a restart too, and takes later changes."""


class FileClosedError(NotWrittenError):
    """The file takes no more changes until a restart, because of an earlier fault. It is as it was."""


class BusyError(FaultError):
    """Too many operations of this kind are in progress. A later retry may succeed."""

    def __init__(self, thing: Thing, rule: str) -> None:
        super().__init__(thing, rule, "try again later")


class StoppedError(FaultError):
    """The thing accepts no more commands, after a storage fault or because the broker is stopping."""

    def __init__(self, thing: Thing, cause: str) -> None:
        super().__init__(thing, f"accepts no more commands: {cause}", "retry after the broker has been restarted")
        self.cause = cause


class NotLedError(FaultError):
    """Another broker of the cluster serves the messages of a virtual host, or none does at the moment.

    The addresses are those at which that broker serves clients, empty where they are not known or not served.
    """

    def __init__(self, thing: Thing, leader: str = "", grpc: str = "", amqp: str = "") -> None:
        places = [f"{address} ({protocol})" for address, protocol in ((grpc, "gRPC"), (amqp, "AMQP")) if address]
        if leader:
            rule, way_out = f"is led by broker '{leader}'", f"connect to {' or '.join(places) or 'that broker'}"
        else:
            rule, way_out = "is led by no broker that this one knows", "try again later"
        super().__init__(thing, rule, way_out)
        self.leader = leader
        self.grpc = grpc
        self.amqp = amqp


def _with(field: str, value: str) -> str:
    name = field.removeprefix("arguments.")
    return f"without {name}" if value == "absent" else f"with {name} {value}"
