"""Errors, in two families: refusals are caused by the client, faults by the environment.

Every error carries data, and its text is built from that data: the thing, the rule and the remedy. Front ends translate
the classes to their protocol's codes; this module knows no protocol.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thing:
    """Subject of an error: a queue, an exchange, a vhost, a user..."""

    kind: str
    name: str
    vhost: str | None = None

    def __str__(self) -> str:
        place = f" in vhost '{self.vhost}'" if self.vhost is not None else ""
        return f"{self.kind} '{self.name}'{place}"


class RefusedError(Exception):
    """Base of all refusals. `rule` continues the thing's name; `way_out` says what to do instead."""

    def __init__(self, thing: Thing, rule: str, way_out: str) -> None:
        super().__init__(f"{thing} {rule}; {way_out}")
        self.thing = thing
        self.rule = rule
        self.way_out = way_out


class NotFoundError(RefusedError):
    def __init__(self, thing: Thing, way_out: str = "declare it first or correct the name") -> None:
        super().__init__(thing, "does not exist", way_out)


class AlreadyThereError(RefusedError):
    def __init__(self, thing: Thing, way_out: str = "choose another name or delete it first") -> None:
        super().__init__(thing, "already exists", way_out)


class AccessRefusedError(RefusedError):
    """The user has no permission, or (reserved names, predeclared exchanges) no user can have it."""


class NotAuthenticatedError(RefusedError):
    """The caller is not authenticated. The text deliberately says no more than that."""

    def __init__(self, user: str, way_out: str = "check the user name and the password") -> None:
        super().__init__(Thing("user", user), "could not be authenticated", way_out)


class PreconditionFailedError(RefusedError):
    """The state does not meet the command's condition. `field` is empty when it is not about one field."""

    def __init__(
        self, thing: Thing, rule: str, way_out: str, *, field: str = "", wanted: str = "", found: str = ""
    ) -> None:
        super().__init__(thing, rule, way_out)
        self.field = field
        self.wanted = wanted
        self.found = found

    @classmethod
    def mismatch(cls, thing: Thing, field: str, wanted: str, found: str) -> "PreconditionFailedError":
        return cls(
            thing,
            f"was declared with {field} {found}, and this declares it with {wanted}",
            f"declare it with {field} {found}, or delete it first",
            field=field,
            wanted=wanted,
            found=found,
        )


class LockedError(RefusedError):
    """The thing belongs to another connection."""

    def __init__(self, thing: Thing, way_out: str = "use it on the connection that declared it") -> None:
        super().__init__(thing, "is exclusive to another connection", way_out)


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

    def __init__(self, thing: Thing, rule: str, *, limit: int) -> None:
        super().__init__(thing, rule, f"at most {limit} are allowed; delete what is not needed")
        self.limit = limit


class FaultError(Exception):
    """Base of all faults: the command was valid, but could not be performed."""

    def __init__(self, thing: Thing, rule: str, way_out: str) -> None:
        super().__init__(f"{thing} {rule}; {way_out}")
        self.thing = thing
        self.rule = rule
        self.way_out = way_out


class StorageError(FaultError):
    """The disk failed, or its content is corrupt."""


class DamagedError(StorageError):
    """Data on the disk cannot be read. A retry does not help before a repair."""


class DiskFullError(StorageError):
    """The disk is full. Nothing was changed, and a later retry may succeed."""


class NotWrittenError(StorageError):
    """The disk refused a change. The file is as it was, after a restart too, and takes later changes."""


class FileClosedError(NotWrittenError):
    """The file takes no more changes until a restart, because of an earlier fault. It is as it was."""


class BusyError(FaultError):
    """Too much of the same work is under way. A later retry may succeed."""

    def __init__(self, thing: Thing, rule: str) -> None:
        super().__init__(thing, rule, "try again later")


class StoppedError(FaultError):
    """The thing takes no more commands: after a storage fault, or because the broker stops."""

    def __init__(self, thing: Thing, cause: str) -> None:
        super().__init__(thing, f"takes no more commands: {cause}", "try again when the broker has been restarted")
        self.cause = cause
