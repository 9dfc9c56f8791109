"""Verifying definitions: the result agrees with a start, and nothing is changed."""

import asyncio
import shutil

import pytest
from typer.testing import CliRunner

from penstock.cli.definitions import app
from penstock.model.errors import StorageError
from penstock.model.names import QueueId, QueueName
from penstock.model.records import Queue
from penstock.storage import DataDirectory, Declared
from penstock.storage.definitions_verify import verify
from penstock.storage.vhost_files import create_vhost_directory, open_vhost_directory

QUEUES = [Declared(Queue(QueueId(number), QueueName(f"q{number}"))) for number in (1, 2, 3)]


@pytest.fixture
def data(tmp_path):
    """Make a used data directory, with the vhosts "sales" and "/"."""
    path = tmp_path / "data"
    with DataDirectory.open(path) as directory:
        for name in ("/", "sales"):
            create_vhost_directory(directory.vhost_directory(name), name)
            (directory.vhost_directory(name) / "msgs.0000000001").touch()
            open_and_close(directory.vhost_directory(name), name, QUEUES)
            (directory.vhost_directory(name) / ".deleted").unlink(missing_ok=True)
        directory.begin(["/", "sales"])
    return path


def folder(data, name="sales"):
    with DataDirectory.open(data) as directory:
        return directory.vhost_directory(name)


def open_and_close(path, name="sales", append=()):
    """Open and close it as a start does."""

    async def run():
        file, _ = open_vhost_directory(path, name, is_proven=True)
        await file.append(append)
        await file.close()

    asyncio.run(run())


def content(data):
    return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}


def test_whole_definitions_are_told_with_what_they_hold(data):
    before = content(data)

    verified = verify(data)

    assert sorted((one.vhost, one.queues, one.error) for one in verified) == [("/", 3, None), ("sales", 3, None)]
    assert [one.vhost for one in verify(folder(data))] == ["sales"]
    assert content(data) == before


def test_a_torn_end_is_whole_and_stays(data):
    path = folder(data) / "definitions.amqp"
    path.write_bytes(path.read_bytes() + b"\x01\0\0\0\0\0")
    before = content(data)

    assert [one.error for one in verify(data)] == [None, None]
    assert content(data) == before


@pytest.mark.parametrize("file", ["definitions.amqp", "definitions.crc"])
def test_every_changed_byte_is_told_where_a_start_is_refused(data, file, tmp_path):
    path = folder(data) / file
    whole = path.read_bytes()
    told = set()
    for place in range(0, len(whole), len(whole) // 20):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        before = content(data)

        error = verify(path.parent)[0].error

        assert content(data) == before
        copy = tmp_path / "copy"
        shutil.copytree(path.parent, copy)
        if error is None:
            open_and_close(copy)
        else:
            with pytest.raises(StorageError):
                open_and_close(copy)
        shutil.rmtree(copy)
        told.add(error is None)
    assert told == {file == "definitions.crc"}, "one slot that is corrupt leaves the other"


@pytest.mark.parametrize("file", ["definitions.amqp", "definitions.crc"])
def test_a_file_that_is_missing_is_told(data, file):
    (folder(data) / file).unlink()

    sales = next(one for one in verify(data) if one.directory == folder(data).name)

    assert f"{file}' is missing" in str(sales.error)


def test_a_folder_that_is_missing_is_told(data):
    shutil.rmtree(folder(data))

    assert sum(one.error is None for one in verify(data)) == 1


def test_definitions_of_an_earlier_version_have_no_proof(data):
    (data / "node.json").unlink()
    (folder(data) / "definitions.crc").unlink()

    assert [one.error for one in verify(data)] == [None, None]


def test_it_is_refused_while_a_broker_runs_and_where_no_definitions_are(data, tmp_path):
    with DataDirectory.open(data), pytest.raises(StorageError, match="in use"):
        verify(data)
    with pytest.raises(StorageError, match="holds no definitions"):
        verify(tmp_path)


def test_the_exit_status_tells_whole_from_corrupt(data):
    assert CliRunner().invoke(app, ["verify", str(data)]).exit_code == 0
    (folder(data) / "definitions.crc").unlink()

    done = CliRunner().invoke(app, ["verify", str(data), "--output", "json"])

    assert done.exit_code == 1
    assert "definitions.crc' is missing" in done.stderr
