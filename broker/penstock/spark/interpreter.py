"""A Python interpreter for Spark's data source and tasks that starts quickly.

Spark puts its own archive of modules first on the path of every Python that it starts. Python does not cache compiled
modules from an archive, so each process compiles PySpark again. That costs three times the processor time of the
installed modules, and on a busy machine more than the ten seconds after which Spark gives up. This module does not
import Spark.
"""

import os
import sys
from pathlib import Path
from shlex import quote

__all__ = ["write_interpreter"]

SCRIPT = """\
#!/bin/sh
# The path is that of the process that made this, without the archives that Spark puts before it.
PYTHONPATH={path}
export PYTHONPATH
exec {python} "$@"
"""


def write_interpreter(folder: Path) -> str:
    """Return PYSPARK_PYTHON: a script in `folder`, which must outlive Spark, or the Python already set there."""
    named = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if named != sys.executable:
        return named
    file = folder / "python"
    path = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    file.write_text(SCRIPT.format(path=quote(path), python=quote(sys.executable)))
    file.chmod(0o755)
    return str(file)
