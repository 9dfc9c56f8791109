"""Opens standard input, output and error where the parent process closed them.

Otherwise the next file that a command opens, such as a segment of the log, gets the number of a closed stream, and an
error message is written into it.
"""

import os
import sys
from typing import Final

_STREAMS: Final = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def open_closed_streams() -> None:
    """Open each closed stream on the null device: reading ends at once, and output is dropped."""
    number = os.open(os.devnull, os.O_RDWR)
    while number < len(_STREAMS):
        os.set_inheritable(number, True)
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, mode))
