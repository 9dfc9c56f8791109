"""The calls that are made again when their connection breaks."""

import pytest

from penstock.client.repeatable import is_repeatable


@pytest.mark.parametrize(
    "method",
    ["AdminService/ListQueues", "MessagingService/Peek", "StreamService/GetOffsets", "StagingService/ListStages"],
)
def test_calls_that_only_read_are_repeatable(method: str) -> None:
    assert is_repeatable(f"/penstock.v1.{method}")


@pytest.mark.parametrize(
    "method",
    [
        *("AdminService/DeclareQueue", "AdminService/RefreshToken", "AdminService/ReadBackup"),
        *("MessagingService/Get", "MessagingService/ReserveLease", "StagingService/Stage", "AdminService/Missing"),
    ],
)
def test_calls_that_may_change_something_are_not(method: str) -> None:
    assert not is_repeatable(f"/penstock.v1.{method}")
