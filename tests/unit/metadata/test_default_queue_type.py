"""The default type of a virtual host's queues."""

import pytest

from penstock.metadata import PendingTopology, entries_of, restore, trial_of
from penstock.metadata.commands import DeclareQueue, SetDefaultQueueType
from penstock.metadata.effects import Done, PersistDefaultQueueType
from penstock.model.errors import InvalidArgumentError, PreconditionFailedError
from penstock.model.names import ConnectionId, QueueName, VhostName
from penstock.model.records import QueueKind
from support.machine import Machine


@pytest.fixture
def machine() -> Machine:
    machine = Machine()
    machine.decide(SetDefaultQueueType("quorum"))
    return machine


def test_a_durable_queue_that_names_no_type_gets_the_default_one(machine: Machine) -> None:
    machine.queue("plain")
    machine.queue("own", arguments={"x-queue-type": "classic"})

    assert machine.queue_named("plain").arguments == {"x-queue-type": "quorum"}
    assert machine.queue_named("plain").delivery_limit == 20
    assert machine.queue_named("own").kind is QueueKind.CLASSIC


@pytest.mark.parametrize("flag", ["transient", "exclusive", "auto_delete"])
def test_a_queue_that_only_a_classic_one_can_be_is_classic(machine: Machine, flag: str) -> None:
    flags = {"durable": flag != "transient", "exclusive": flag == "exclusive", "auto_delete": flag == "auto_delete"}
    machine.queue("fleeting", arguments=None, **flags)

    assert machine.queue_named("fleeting").arguments == {}


def test_a_queue_that_exists_keeps_its_type_and_is_declared_without_one(machine: Machine) -> None:
    machine.queue("quorum")
    machine.queue("classic", arguments={"x-queue-type": "classic"})
    machine.decide(SetDefaultQueueType("stream"))

    for name in ("quorum", "classic"):
        assert machine.queue(name).answer.is_new is False  # type: ignore[union-attr]
    with pytest.raises(PreconditionFailedError, match="is a quorum queue, not a stream"):
        machine.queue("quorum", arguments={"x-queue-type": "stream"})


def test_an_argument_that_the_default_type_lacks_is_refused(machine: Machine) -> None:
    machine.decide(SetDefaultQueueType("stream"))

    with pytest.raises(InvalidArgumentError, match="that streams do not support"):
        machine.queue("jobs", arguments={"x-max-length": 1})


def test_an_imported_queue_that_names_no_type_is_classic(machine: Machine) -> None:
    machine.decide(DeclareQueue(QueueName("old"), ConnectionId(0), takes_default_type=False))

    assert machine.queue_named("old").kind is QueueKind.CLASSIC


def test_setting_it_again_changes_nothing_and_an_unknown_one_is_refused(machine: Machine) -> None:
    assert machine.entries == [PersistDefaultQueueType(QueueKind.QUORUM)]

    assert machine.decide(SetDefaultQueueType("quorum")).answer == Done(0)
    with pytest.raises(InvalidArgumentError, match="cannot have the default queue type 'mirrored'; use one of classic"):
        machine.decide(SetDefaultQueueType("mirrored"))

    assert len(machine.entries) == 1


def test_copies_of_the_topology_have_it(machine: Machine) -> None:
    pending = PendingTopology(machine.state)
    pending.put_default_queue_type(QueueKind.STREAM)
    before = machine.state.default_queue_type
    pending.commit()

    assert (before, machine.state.default_queue_type) == (QueueKind.QUORUM, QueueKind.STREAM)
    assert trial_of(machine.state).default_queue_type is QueueKind.STREAM
    assert restore(VhostName("/"), entries_of(machine.state), 0).default_queue_type is QueueKind.STREAM
