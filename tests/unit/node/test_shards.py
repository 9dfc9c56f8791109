"""What a native shard's errors become."""

import pytest

from penstock.model.errors import StorageError
from penstock.native import StorageError as NativeStorageError
from penstock.node.shards import CarefulBackup


class RefusedCopy:
    position = 7

    def write(self, directory: str) -> None:
        raise NativeStorageError(f"cannot write {directory}/msgs.0000000001: No space left on device (os error 28)")

    def close(self) -> None:
        pass


def test_a_backup_that_its_target_refuses_names_the_target_and_the_file():
    with pytest.raises(StorageError) as caught:
        CarefulBackup(RefusedCopy(), "shop").write("/backups/monday")

    assert str(caught.value) == (
        "backup '/backups/monday' of virtual host 'shop' failed: cannot write /backups/monday/msgs.0000000001: "
        "No space left on device (os error 28); free space there or repair that disk, and try again; the broker goes on"
    )
