"""The owner with a definitions file that fails now and then.

The engine has what is committed, the file has what of it is durable, no queue stays shut, every caller gets an answer,
and the vhost goes on.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.metadata import VhostTopology, changes_of, entries_of, restore
from penstock.metadata.commands import (
    Bind,
    Command,
    ConnectionClosed,
    DeclareExchange,
    DeclareQueue,
    DeclareStream,
    DeleteExchange,
    DeleteQueue,
    DeleteStream,
    PurgeQueue,
    SetLimits,
    SetPolicy,
    Unbind,
)
from penstock.metadata.policies import Policy
from penstock.model.errors import RefusedError, StorageError
from penstock.model.limits import Limits
from penstock.model.names import ConnectionId, ExchangeName, QueueName, RoutingKey, VhostName
from penstock.model.records import Binding, DestinationKind
from penstock.native import Shard
from penstock.vhost.apply import apply_changes
from penstock.vhost.batches import Outcome
from penstock.vhost.owner import Owner
from support.vhost_fakes import FakeDefinitions, FakeShard

T = TypeVar("T")
queues = st.sampled_from(["qa", "qb", "qc"]).map(QueueName)
exchanges = st.sampled_from(["xa", "xb", "amq.topic"]).map(ExchangeName)
connections = st.sampled_from([1, 2]).map(ConnectionId)
keys = st.sampled_from(["", "a.#"]).map(RoutingKey)
bindings = st.builds(Binding, exchanges, st.just(DestinationKind.QUEUE), queues, keys) | st.builds(
    Binding, exchanges, st.just(DestinationKind.EXCHANGE), exchanges, keys
)
own_log = st.sampled_from([{}, {"x-dedicated": True}])
commands: st.SearchStrategy[Command] = st.one_of(
    st.builds(DeclareQueue, queues, connections, st.booleans(), st.booleans(), st.booleans(), arguments=own_log),
    st.builds(DeclareExchange, exchanges, st.just("topic"), st.booleans(), st.booleans()),
    st.builds(DeleteQueue, queues, connections, if_unused=st.booleans(), if_empty=st.booleans()),
    st.builds(DeleteExchange, exchanges),
    st.builds(Bind, bindings, connections),
    st.builds(Unbind, bindings, connections),
    st.builds(PurgeQueue, queues, connections),
    st.builds(ConnectionClosed, connections),
    st.builds(DeclareStream, st.sampled_from(["s", "t"]), st.just(2), own_log),
    st.builds(DeleteStream, st.sampled_from(["s", "t"])),
    st.builds(SetPolicy, st.builds(Policy, st.sampled_from("pq"), st.just("^never"), st.just({"durability": "disk"}))),
    st.builds(SetLimits, st.builds(Limits, queues_max=st.sampled_from([2, 5, None]))),
)


class OwnerWithFaults(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.definitions = FakeDefinitions()
        self.shard = FakeShard()
        topology = VhostTopology(VhostName("/"))
        apply_changes(cast(Shard, self.shard), changes_of(topology))
        self.owner = Owner(topology, cast(Shard, self.shard), self.definitions, retry_seconds=0)
        self.running = self.loop.create_task(self.owner.run())
        self.calls: list[asyncio.Future[Outcome]] = []

    def teardown(self) -> None:
        self.running.cancel()
        self.run(asyncio.wait([self.running]))
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    @rule(
        batch=st.lists(commands, min_size=1, max_size=8),
        takes_back=st.booleans(),
        full_count=st.sampled_from([0, 0, 1, 3]),
        dedicated_max=st.sampled_from([1, 256]),
    )
    def submit(self, batch: list[Command], takes_back: bool, full_count: int, dedicated_max: int) -> None:
        """Submit commands at once while the file fails, then let it work again: all are answered."""
        self.definitions.takes_back = takes_back
        self.definitions.full_count = full_count
        self.shard.dedicated_max = dedicated_max
        self.run(self.fail_for_a_while(batch))

    async def fail_for_a_while(self, batch: list[Command]) -> None:
        self.calls = [asyncio.ensure_future(self.owner.submit(command)) for command in batch]
        await asyncio.wait(self.calls, timeout=0.01)
        self.definitions.takes_back = False
        self.definitions.full_count = 0
        answers = await asyncio.gather(*self.calls, return_exceptions=True)
        if self.running.done():
            self.running.result()
        for answer in answers:
            assert isinstance(answer, Outcome | RefusedError | StorageError), answer
        assert not self.owner._delayed

    @invariant()
    def engine_and_file_have_what_is_committed(self) -> None:
        topology = self.owner.topology
        assert self.owner.stopped is None
        topology.check_invariants()
        fresh = FakeShard()
        apply_changes(cast(Shard, fresh), changes_of(topology))
        assert self.shard.queues == fresh.queues
        assert self.shard.exchanges == fresh.exchanges
        assert self.shard.routes == fresh.routes
        assert self.shard.dedicated == {queue.id for queue in topology.queues.values() if queue.is_dedicated}
        assert self.shard.shut & self.shard.queues.keys() == set()
        restored = restore(VhostName("/"), self.definitions.entries, 0)
        assert sorted(map(str, entries_of(restored))) == sorted(map(str, entries_of(topology)))


OwnerWithFaults.TestCase.settings = settings(max_examples=60, stateful_step_count=15, deadline=None)
TestOwnerWithFaults = OwnerWithFaults.TestCase
