"""The default of the budget of memory for requests and responses."""

from pathlib import Path

from penstock.kit.memory import limit_bytes
from penstock.node.buffers import MIB, buffer_bytes


def test_the_default_is_a_quarter_of_the_memory():
    assert buffer_bytes(16 * MIB, available=8_192 * MIB) == 2_048 * MIB


def test_the_default_has_the_size_of_four_large_requests_at_least():
    assert buffer_bytes(16 * MIB, available=256 * MIB) == 256 * MIB
    assert buffer_bytes(512 * MIB, available=1_024 * MIB) == 4 * 514 * MIB


def test_the_memory_is_that_of_the_control_group(tmp_path: Path):
    assert limit_bytes(tmp_path) > 0
    (tmp_path / "memory.max").write_text("max\n")
    assert limit_bytes(tmp_path) == limit_bytes(tmp_path / "nowhere")
    (tmp_path / "memory.max").write_text("1048576\n")
    assert limit_bytes(tmp_path) == MIB
