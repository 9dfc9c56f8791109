"""The proof that a definitions file is whole: its length and checksum, in `definitions.crc` beside it.

Two slots are written in turn, so that a write cut short by a power failure leaves the other. The newest whole slot
decides. It proves a first part of the file: the rest was being written when the broker stopped and was never answered.
While the file is replaced a slot holds two proofs, of the old and of the new content: either may be found.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import Final, Self

import google_crc32c

from penstock.model.errors import StorageError, Thing
from penstock.storage.jsonfiles import write_file

PROOF: Final = "definitions.crc"
_SLOT: Final = Struct("<QQIQI")  # number, length, checksum, the other length, the other checksum
_CRC: Final = Struct("<I")
_SLOT_BYTES: Final = _SLOT.size + _CRC.size
_SLOT_DISTANCE: Final = 512  # each slot in its own sector
PROOF_BYTES: Final = 2 * _SLOT_DISTANCE


@dataclass(frozen=True, slots=True)
class Proof:
    """Expected length and checksum of the start of a file."""

    length: int
    crc: int

    @classmethod
    def of(cls, content: bytes) -> Self:
        return cls(len(content), google_crc32c.value(content))

    def extended(self, content: bytes) -> "Proof":
        """Return the proof of a file to which this is appended."""
        return Proof(self.length + len(content), google_crc32c.extend(self.crc, content))

    def holds_for(self, content: bytes) -> bool:
        return self.length <= len(content) and google_crc32c.value(content[: self.length]) == self.crc


class ProofFile:
    """A proof file, open from `open` or `create` to `close`. Invariant: `_number` is that of the newest slot."""

    def __init__(self, path: Path, descriptor: int, number: int, proofs: tuple[Proof, ...]) -> None:
        self.proofs = proofs
        """Proofs of the newest slot: one of them holds for the file."""
        self._path = path
        self._descriptor = descriptor
        self._number = number

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open a proof file. Raises StorageError when no slot is whole, OSError when the disk fails."""
        number, proofs = _newest(path, path.read_bytes())
        return cls(path, os.open(path, os.O_WRONLY | os.O_CLOEXEC), number, proofs)

    @classmethod
    def create(cls, path: Path, proof: Proof) -> Self:
        """Create a proof file, replacing any old one. Raises StorageError and OSError."""
        write_proof(path, proof)
        return cls.open(path)

    def put(self, *proofs: Proof) -> None:
        """Write to the older slot; return when it is on the disk. Raises OSError."""
        number = self._number + 1
        slot = _slot(number, proofs)
        if os.pwrite(self._descriptor, slot, (number % 2) * _SLOT_DISTANCE) != len(slot):
            raise OSError(0, "it was written in part")
        os.fdatasync(self._descriptor)
        self._number, self.proofs = number, proofs

    def close(self) -> None:
        os.close(self._descriptor)


def read_proofs(path: Path) -> tuple[Proof, ...]:
    """Read the proofs of the newest slot. Raises StorageError when no slot is whole, OSError when the disk fails."""
    return _newest(path, path.read_bytes())[1]


def write_proof(path: Path, proof: Proof) -> None:
    """Write a new file in one step. Raises StorageError."""
    write_file(path, proof_content(proof))


def proof_content(proof: Proof) -> bytes:
    """Return the content of a new file."""
    return _slot(2, (proof,)).ljust(PROOF_BYTES, b"\0")


def _slot(number: int, proofs: tuple[Proof, ...]) -> bytes:
    first, other = proofs[0], proofs[-1]  # one proof is written twice
    content = _SLOT.pack(number, first.length, first.crc, other.length, other.crc)
    return content + _CRC.pack(google_crc32c.value(content))


def _newest(path: Path, content: bytes) -> tuple[int, tuple[Proof, ...]]:
    found: list[tuple[int, tuple[Proof, ...]]] = []
    for at in (0, _SLOT_DISTANCE):
        slot = content[at : at + _SLOT_BYTES]
        if len(slot) < _SLOT_BYTES or _CRC.pack(google_crc32c.value(slot[: _SLOT.size])) != slot[_SLOT.size :]:
            continue
        number, length, crc, other_length, other_crc = _SLOT.unpack_from(slot)
        found.append((number, tuple(dict.fromkeys((Proof(length, crc), Proof(other_length, other_crc))))))
    if not found:
        raise StorageError(
            Thing("file", str(path)),
            "is corrupt at byte 0: neither of its two slots is valid, so the definitions cannot be verified",
            "restore a copy of both files, or see `penstock definitions repair`; nothing was changed",
        )
    return max(found)
