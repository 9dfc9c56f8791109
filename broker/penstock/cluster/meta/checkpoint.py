"""The state of the metadata as one file, `meta.checkpoint`, and what the other files have, `meta.json`.

A broker starts with the checkpoint and applies the log's records after it to its memory alone, up to the position that
its other files have. A broker without metadata gets the checkpoint of another one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from penstock.cluster.meta.changes import MetaChange
from penstock.cluster.meta.codec import Codec, CodecError
from penstock.cluster.meta.commands import MetaAnswer
from penstock.cluster.meta.state import MetaState, Session, changes_of
from penstock.model.errors import StorageError, Thing
from penstock.model.names import VhostName
from penstock.storage.definitions_proof import Proof
from penstock.storage.jsonfiles import read_json, write_file, write_json

_BEGINS_ANEW: Final = "begins_anew"
_WAY_OUT: Final = "remove the metadata of this broker while it is stopped, so that it copies another one's"


@dataclass(frozen=True, slots=True)
class _Answer:
    number: int
    answer: MetaAnswer


@dataclass(frozen=True, slots=True)
class _Session:
    session: int
    answered_below: int
    answers: tuple[_Answer, ...]


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    position: int
    changes: tuple[MetaChange, ...]
    sessions: tuple[_Session, ...]


_CHECKPOINTS: Final[Codec[_Checkpoint]] = Codec(_Checkpoint)


def checkpoint_of(state: MetaState) -> bytes:
    """Return the content of a checkpoint. The state must not change meanwhile."""
    sessions = (
        _Session(number, each.answered_below, tuple(_Answer(*pair) for pair in each.answers.items()))
        for number, each in sorted(state.sessions.items())
    )
    return _CHECKPOINTS.encode(_Checkpoint(state.position, tuple(changes_of(state)), tuple(sessions)))


def state_of(content: bytes) -> MetaState:
    """Return the state of a checkpoint. Raises StorageError."""
    try:
        found = _CHECKPOINTS.decode(content)
    except CodecError as error:
        raise StorageError(Thing("checkpoint", "meta"), f"cannot be read: {error}", _WAY_OUT) from error
    state = MetaState()
    for change in found.changes:
        state.change(change)
    for each in found.sessions:
        answers = {answer.number: answer.answer for answer in each.answers}
        state.sessions[each.session] = Session(each.answered_below, answers)
    state.position = found.position
    return state


@dataclass(frozen=True, slots=True)
class Applied:
    """The position up to which the files have everything, and what was true of them then.

    `definitions` has the files that may be longer now, by their directories: each began with what its proof says.
    `vhost` is being created or deleted by the next record. If the checkpoint has the position `installing`, the files
    are being made from it. `begins_anew`: the files are of a state that a recovery has replaced, and the recovered one
    is not known yet.
    """

    position: int
    definitions: Mapping[str, Proof] = field(default_factory=dict)
    vhost: VhostName | None = None
    installing: int | None = None
    begins_anew: bool = False


def read_applied(path: Path) -> Applied | None:
    """Return what `meta.json` says; None without one. Raises StorageError."""
    try:
        found = read_json(path)
    except FileNotFoundError:
        return None
    match found:
        case {
            "position": int(position),
            "definitions": dict(definitions),
            "vhost": str() | None as vhost,
            "installing": int() | None as installing,
            **rest,
        }:
            proofs = {name: _proof(path, value) for name, value in definitions.items()}
            begins_anew = rest.get(_BEGINS_ANEW) is True
            return Applied(position, proofs, None if vhost is None else VhostName(vhost), installing, begins_anew)
    raise _wrong(path)


def write_applied(path: Path, applied: Applied) -> None:
    definitions = {name: {"length": proof.length, "crc": proof.crc} for name, proof in applied.definitions.items()}
    content = {
        "position": applied.position,
        "definitions": definitions,
        "vhost": applied.vhost,
        "installing": applied.installing,
    }
    write_json(path, content | ({_BEGINS_ANEW: True} if applied.begins_anew else {}))


def read_checkpoint(path: Path) -> MetaState | None:
    """Return the state of a file; None without one. Raises StorageError."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(Thing("file", str(path)), f"cannot be read: {error.strerror}", _WAY_OUT) from error
    return state_of(content)


def write_checkpoint(path: Path, state: MetaState) -> None:
    write_file(path, checkpoint_of(state))


def _proof(path: Path, value: Any) -> Proof:
    match value:
        case {"length": int(length), "crc": int(crc)}:
            return Proof(length, crc)
    raise _wrong(path)


def _wrong(path: Path) -> StorageError:
    return StorageError(Thing("file", str(path)), "must hold a position and the definitions' lengths", _WAY_OUT)
