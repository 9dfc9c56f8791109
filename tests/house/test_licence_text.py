"""The licence is the Apache licence, word for word."""

from hashlib import sha256
from pathlib import Path

LICENCE = Path(__file__).resolve().parents[2] / "LICENSE"


def test_no_change_of_words_reached_the_licence() -> None:
    assert sha256(LICENCE.read_bytes()).hexdigest() == (
        "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    )
