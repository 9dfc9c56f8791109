"""The broker's own state.

Every principal may read it; only administrators and monitoring see the paths of its files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from penstock.identity import Tag
from penstock.services.ports import Corruption, Node, NodeState, VhostTotals
from penstock.services.principal import Principal
from penstock.services.verbs import reading

CARETAKERS: Final = frozenset({Tag.ADMINISTRATOR, Tag.MONITORING})


@dataclass(frozen=True, slots=True)
class BrokerStatus:
    """`metrics` are the engine's counters by name."""

    node: NodeState
    metrics: Mapping[str, float]
    vhosts: list[VhostTotals]
    corruptions: list[Corruption]


class StatusVerbs:
    def __init__(self, node: Node) -> None:
        self._node = node

    @reading
    async def get_status(self, principal: Principal) -> BrokerStatus:
        state, metrics, totals = self._node.state(), self._node.metrics(), self._node.vhost_totals()
        if CARETAKERS.intersection(principal.tags):
            return BrokerStatus(state, metrics, totals, self._node.corruptions())
        return BrokerStatus(replace(state, data_dir="", data_id="", listeners={}), metrics, totals, [])
