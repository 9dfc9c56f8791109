"""Names under which the broker remembers what a query or a job wrote: of producers, and of stages.

A name is bound to the target of the rows, so that a checkpoint that is copied for another stream, and a `producer` that
is used for two of them, write to each.
"""

import json
from hashlib import sha256

from penstock.spark.options import WriteOptions

__all__ = ["bound_name", "task_name", "task_names"]

DIGEST_LENGTH = 12


def bound_name(name: str, options: WriteOptions) -> str:
    """Return the name for rows of this write, which is also that of its stage."""
    target = json.dumps([options.stream, options.exchange, options.routing_key])
    return f"{name}/{sha256(target.encode()).hexdigest()[:DIGEST_LENGTH]}"


def task_name(name: str, task: int) -> str:
    """Return the producer name of a task. The broker takes names that differ in the last number for one program."""
    return f"{name}/{task}"


def task_names(name: str, tasks: int) -> list[str]:
    return [task_name(name, task) for task in range(tasks)]
