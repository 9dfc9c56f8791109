"""The Python that Spark starts for a data source and for its tasks, made to start quickly.

Spark puts its own archive of modules first on the path of every Python that it starts. Python keeps no compiled form of
what comes from an archive, so each of them compiles PySpark anew: three times the processor time of the installed
modules, and on a busy machine more than the ten seconds after which Spark gives up waiting. It knows no Spark.
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
    """For PYSPARK_PYTHON: a script in `folder`, which must outlive Spark; or whatever other Python is named there."""
    named = os.environ.get("PYSPARK_PYTHON", sys.executable)
    if named != sys.executable:
        return named
    file = folder / "python"
    path = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    file.write_text(SCRIPT.format(path=quote(path), python=quote(sys.executable)))
    file.chmod(0o755)
    return str(file)
