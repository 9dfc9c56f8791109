"""Accepting a definitions file that starts refuse: the readable part stays, and so does the original file."""

import asyncio

import pytest

from penstock.model.errors import StorageError
from penstock.model.names import QueueId, QueueName
from penstock.model.records import Queue
from penstock.storage import DataDirectory, Declared
from penstock.storage.definitions_repair import accept, look
from penstock.storage.vhost_files import create_vhost_directory, open_vhost_directory

QUEUES = [Declared(Queue(QueueId(number), QueueName(f"q{number}"))) for number in (1, 2, 3)]


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "data" / "folder"
    path.parent.mkdir()
    create_vhost_directory(path, "sales")
    (path / "msgs.0000000001").touch()

    async def fill():
        file, _ = open_vhost_directory(path, "sales")
        await file.append(QUEUES)
        await file.close()

    asyncio.run(fill())
    return path


def opened(folder):
    file, changes = open_vhost_directory(folder, "sales", is_proven=True)
    asyncio.run(file.close())
    return changes


def test_what_stands_before_the_corruption_stays_and_the_file_as_it_was_too(folder):
    path = folder / "definitions.amqp"
    content = bytearray(path.read_bytes())
    content[content.rindex(b"\xce", 0, -1)] = 0  # the end of the second frame
    path.write_bytes(content)

    assert look(folder).queues == ("q1",)
    with pytest.raises(StorageError, match="corrupt"):
        opened(folder)
    accepted = accept(folder)

    assert accepted.queues == ("q1",)
    assert accepted.problem is not None
    assert "byte" in accepted.problem
    assert opened(folder) == QUEUES[:1]
    assert (folder / "definitions.amqp.corrupt").read_bytes() == content


def test_a_file_that_is_gone_is_begun_anew(folder):
    (folder / "definitions.amqp").unlink()

    assert accept(folder).queues == ()

    assert opened(folder) == []


def test_a_lost_proof_is_made_again(folder):
    (folder / "definitions.crc").unlink()

    accept(folder)

    assert opened(folder) == QUEUES


def test_it_is_refused_while_a_broker_runs_and_for_another_folder(folder, tmp_path):
    with DataDirectory.open(folder.parent), pytest.raises(StorageError, match="in use"):
        accept(folder)
    with pytest.raises(StorageError, match="is not the folder of a vhost"):
        accept(tmp_path)
