"""What can go wrong, in two families: refusals are the client's doing, faults are the world's.

Every error carries data, and its text is built from that data: the thing, the rule it met and the way out.
Front ends translate the classes to their protocol's codes; nothing here knows a protocol.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thing:
    """What an error is about: a queue, an exchange, a vhost, a user..."""

    kind: str
    name: str
    vhost: str | None = None

    def __str__(self) -> str:
        place = f" in vhost '{self.vhost}'" if self.vhost is not None else ""
        return f"{self.kind} '{self.name}'{place}"


class RefusedError(Exception):
    """The root of all refusals. `rule` reads on from the thing's name; `way_out` says what to do instead."""

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
    """Not allowed to this user, or (reserved names, predeclared exchanges) to nobody."""


class NotAuthenticatedError(RefusedError):
    """Who is calling is not known. Deliberately says no more than that."""

    def __init__(self, user: str, way_out: str = "check the user name and the password") -> None:
        super().__init__(Thing("user", user), "could not be authenticated", way_out)


class PreconditionFailedError(RefusedError):
    """The state is not what the command supposes. `field` is empty when it is not about one field."""

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
    """A bound on a number of things was met."""

    def __init__(self, thing: Thing, rule: str, *, limit: int) -> None:
        super().__init__(thing, rule, f"at most {limit} are allowed; delete what is not needed")
        self.limit = limit


class FaultError(Exception):
    """The root of all faults: the command was right, and the world could not do it."""

    def __init__(self, thing: Thing, rule: str, way_out: str) -> None:
        super().__init__(f"{thing} {rule}; {way_out}")
        self.thing = thing
        self.rule = rule
        self.way_out = way_out


class StorageError(FaultError):
    """The disk refused, or what it holds is damaged."""


class DamagedError(StorageError):
    """What the disk holds cannot be read. Trying again does not help before somebody mends it."""


class DiskFullError(StorageError):
    """The disk has no room. Nothing was changed, and a later try may succeed."""


class NotWrittenError(StorageError):
    """The disk refused a change. The file is as it was, after a restart too, and takes later changes."""


class FileClosedError(NotWrittenError):
    """The file takes no more changes until a restart, because of an earlier fault. It is as it was."""


class BusyError(FaultError):
    """Too much of the same is under way. A later try may succeed."""

    def __init__(self, thing: Thing, rule: str) -> None:
        super().__init__(thing, rule, "try again later")


class StoppedError(FaultError):
    """The thing takes no more commands: after a fault of its storage, or because the broker stops."""

    def __init__(self, thing: Thing, cause: str) -> None:
        super().__init__(thing, f"takes no more commands: {cause}", "try again when the broker has been restarted")
        self.cause = cause
