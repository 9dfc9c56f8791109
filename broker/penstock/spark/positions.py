"""Offsets of Spark for a stream query, as its Spark checkpoint has them.

For each partition an offset has the first unread offset and the number of rows ever stored before it. The end of a
batch also has the batch's cuts: where each of its tasks begins. They are decided once, and a repeated batch is read as
they say, whatever the options or the stream are by then. Pure: no wire, no Spark.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

from penstock.spark.errors import OptionError

__all__ = ["VERSION", "Position", "Positions", "offset_json", "parse_offset"]

VERSION = 2


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a partition: `next` is the first unread offset, `rows` counts the rows ever stored before it.

    `cuts` has the start of each task of the batch that ends here, and the number of rows before it: ascending, the
    end of one is the start of the next. It is empty where the batch reads nothing. `is_exact` is False where the
    broker did not count the rows exactly. `is_away` says that the partition was not there, and that the query went on.
    """

    stream: str
    id: str
    next: int
    rows: int
    cuts: tuple[tuple[int, int], ...] = ()
    is_exact: bool = True
    is_away: bool = False


# By the partition's name, in the order of the tasks.
Positions: TypeAlias = dict[str, Position]


def offset_json(positions: Positions) -> dict[str, Any]:
    """Return what Spark stores."""
    partitions: dict[str, Any] = {}
    for name, at in positions.items():
        partitions[name] = {"stream": at.stream, "id": at.id, "next": at.next, "rows": at.rows}
        if at.cuts:
            partitions[name]["cuts"] = [list(cut) for cut in at.cuts]
        if not at.is_exact:
            partitions[name]["exact"] = False
        if at.is_away:
            partitions[name]["away"] = True
    return {"version": VERSION, "partitions": partitions}


def parse_offset(found: Mapping[str, Any]) -> Positions:
    """Parse what Spark stored. Raises OptionError when this release does not know its format."""
    version = found.get("version") if isinstance(found, Mapping) else None
    if version != VERSION:
        what = "a version of Penstock's offsets that is unknown here" if isinstance(version, int) else "no version"
        raise OptionError(
            f"the Spark checkpoint has offsets with {what}, and this release reads version {VERSION}: start with a new "
            "checkpoint, or use the release that wrote it"
        )
    try:
        return {name: parsed(each) for name, each in found["partitions"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise OptionError(
            f"an offset in the Spark checkpoint is corrupt: {error}; restore the checkpoint, or start with a new one"
        ) from error


def parsed(found: Mapping[str, Any]) -> Position:
    cuts = tuple((whole(offset), whole(rows)) for offset, rows in found.get("cuts", ()))
    at = Position(
        str(found["stream"]),
        str(found["id"]),
        whole(found["next"]),
        whole(found["rows"]),
        cuts,
        is_exact=found.get("exact", True) is not False,
        is_away=found.get("away", False) is True,
    )
    for (start, before), (end, after) in pairwise((*cuts, (at.next, at.rows))):
        if start > end or before > after:
            raise ValueError(f"the cuts of '{at.stream}' do not ascend")
    return at


def whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError(f"'{number}' is not a whole number")
    return number
