"""How a verb is written once: as a generator that yields calls, is sent their answers, and returns a record.

Connections of threads and of loops drive the same generators. Nothing here knows a transport.
"""

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Protocol, TypeAlias, TypeVar

from google.protobuf.message import Message

__all__ = ["AsyncRun", "Call", "Run", "Steps", "ask", "drive", "drive_async"]

T = TypeVar("T")
R = TypeVar("R", bound=Message)

# A method's full path and its serialised request.
Call: TypeAlias = tuple[str, bytes]
Steps: TypeAlias = Generator[Call, bytes, T]


class Run(Protocol):
    """Runs a verb to its end on a connection, and blocks."""

    def __call__(self, steps: Steps[T], /) -> T: ...


class AsyncRun(Protocol):
    """Runs a verb to its end on a connection of a loop."""

    def __call__(self, steps: Steps[T], /) -> Coroutine[Any, Any, T]: ...


def ask(method: str, message: Message, response: type[R]) -> Steps[R]:
    """Make one call of a verb; `method` is its full path."""
    # Deterministic, so that the headers of staged messages keep the order of their names.
    answer = yield method, message.SerializeToString(deterministic=True)
    return response.FromString(answer)


def drive(steps: Steps[T], perform: Callable[[str, bytes], bytes]) -> T:
    """Run a verb to its end; `perform` makes a call and blocks."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(perform(*wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result


async def drive_async(steps: Steps[T], perform: Callable[[str, bytes], Awaitable[bytes]]) -> T:
    """Run a verb to its end; `perform` makes a call that is awaited."""
    try:
        wanted = next(steps)
        while True:
            wanted = steps.send(await perform(*wanted))
    except StopIteration as stop:
        result: T = stop.value
        return result
