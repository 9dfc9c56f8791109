"""The number of files that the process may open: as many as the system allows, most of them for connections.

The rest is for logs: a broker that is full of connections still opens segments. The three standard files are always
open, so that no file of the data directory gets the number of standard error and with it the text of a crash.
"""

import os
import resource
from typing import Final

FILES_MAX: Final = 1 << 20
"""More is never needed, and some systems take long to close what could be open."""
_CONNECTIONS_TENTHS: Final = 9
_STANDARD_FILE_LAST: Final = 2


def open_standard_files() -> None:
    """Open /dev/null in place of each standard file that the parent process has closed."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= _STANDARD_FILE_LAST:
        pass
    os.close(number)


def raise_files_max() -> int:
    """Raise the limit of open files, and return it. If the system refuses, the limit stays as it was."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, FILES_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return FILES_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):
        return soft
    return wanted


def connections_that_fit(files_max: int | None = None) -> int:
    """Return how many connections fit into `files_max` open files, by default the process's limit."""
    if files_max is None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        files_max = FILES_MAX if soft == resource.RLIM_INFINITY else soft
    return max(1, files_max * _CONNECTIONS_TENTHS // 10)
