"""Arguments of queues with the settings that policies add, for listings.

Matching a name with all policies takes long, so what was found is kept until policies change. It is used on one thread.
"""

from typing import Final, NamedTuple

from penstock.metadata import VhostTopology
from penstock.metadata.policies import Policies
from penstock.metadata.policy_rules import effective_queue, policies_of
from penstock.model.arguments import Arguments
from penstock.model.names import QueueId
from penstock.model.records import Queue

SPARE: Final = 1_000
"""So many queues more than there are may be kept: others were deleted since they were listed."""


class Effective(NamedTuple):
    """The arguments as they have their effect, and the names of the policies that apply; empty for none."""

    arguments: Arguments
    policy: str = ""
    operator_policy: str = ""


class EffectiveSettings:
    def __init__(self, topology: VhostTopology) -> None:
        self._topology = topology
        self._policies: tuple[Policies, Policies] = ({}, {})
        self._found: dict[QueueId, Effective] = {}

    def of(self, queue: Queue) -> Effective:
        state = self._topology
        if not state.has_policies:
            return Effective(queue.arguments)
        known, now = self._policies, (state.policies, state.operator_policies)
        is_known = known[0] is now[0] and known[1] is now[1]
        if not is_known or len(self._found) > len(state.queues) + SPARE:
            self._policies, self._found = now, {}
        found = self._found.get(queue.id)
        if found is None:
            arguments = effective_queue(state, queue).arguments
            found = self._found[queue.id] = Effective(arguments, *policies_of(state, queue))
        return found
