"""A stage of staged publishing."""
# Generated from aio_stage.py by `make verbs`; edit that file instead.

from collections.abc import Iterable, Mapping, Sequence

from penstock.client import staging
from penstock.client.properties import Properties
from penstock.client.staging import Attempt, PublishedBatch, Target
from penstock.client.steps import Run
from penstock.client.stream import KeyedBody
from penstock.client.values import Value

__all__ = ["Stage"]


class Stage:
    """A stage of one target. It keeps no connection of its own; the first call creates it at the broker."""

    def __init__(self, run: Run, target: Target) -> None:
        self.target = target
        self._run = run

    def stage(
        self,
        batch: int,
        rows: Iterable[bytes | KeyedBody],
        properties: Properties | None = None,
        headers: Mapping[str, Value] | None = None,
    ) -> Attempt:
        """Stage bodies, or pairs of key and body, as one attempt; return when they are on the disk.

        When this raises, the attempt is lost. Stage its rows again, as another attempt.
        """
        encoded = staging.encoded(properties, headers)
        return self._run(staging.stage_rows(self.target, batch, staging.keyed(rows), encoded))

    def publish(self, batch: int, attempts: Sequence[Attempt]) -> PublishedBatch:
        """Publish the rows of these attempts, drop all others up to this batch, and return when that is on the disk.

        Repeat it until it returns: the broker publishes a batch once.
        """
        return self._run(staging.publish_staged(self.target, batch, attempts))

    def discard(self, batch: int, attempts: Sequence[Attempt] = ()) -> int:
        """Drop these attempts, or all, of a batch that is not published; return the number of rows."""
        return self._run(staging.discard_staged(self.target, batch, attempts))
