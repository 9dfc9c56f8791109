"""The providers of clusters, by the commands that they run: kind itself needs a container engine."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from e2e.cluster import Existing, Harness, Kind, ProviderError, provider


class Recorder:
    """Runs nothing; makes the kubeconfig that a command names, as kind does."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []

    def __call__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self.commands.append(list(command))
        if "--kubeconfig" in command and "create" in command:
            Path(command[command.index("--kubeconfig") + 1]).touch()


def test_kind_is_created_loaded_and_deleted_under_one_name(tmp_path: Path) -> None:
    recorder = Recorder()
    kubeconfig = tmp_path / "config"
    kind = Kind(kubeconfig, run=recorder)

    assert kind.up(1) == kubeconfig
    kind.load(Path("broker.tar"))
    kind.down()

    assert recorder.commands == [
        ["kind", "create", "cluster", "--name", "penstock", "--kubeconfig", str(kubeconfig), "--wait", "120s"],
        ["kind", "load", "image-archive", "broker.tar", "--name", "penstock"],
        ["kind", "delete", "cluster", "--name", "penstock", "--kubeconfig", str(kubeconfig)],
    ]
    assert not kubeconfig.exists()


def test_a_kind_cluster_that_is_up_is_used_as_it_is(tmp_path: Path) -> None:
    recorder = Recorder()
    kind = Kind(tmp_path / "config", run=recorder)

    kind.up(1)
    kind.up(1)

    assert len(recorder.commands) == 1


def test_the_harness_loads_onto_every_node(tmp_path: Path) -> None:
    recorder = Recorder()
    (tmp_path / "node1").mkdir()
    (tmp_path / "node2").mkdir()

    Harness(tmp_path, run=recorder).load(Path("broker.tar"))

    assert [command[-2:] for command in recorder.commands] == [["1", "broker.tar"], ["2", "broker.tar"]]


def test_an_existing_cluster_is_loaded_by_the_command_that_its_owner_names(tmp_path: Path) -> None:
    recorder = Recorder()
    (tmp_path / "config").touch()
    existing = Existing(tmp_path / "config", "ctr images import", run=recorder)

    assert existing.up(1) == tmp_path / "config"
    existing.load(Path("broker.tar"))
    existing.down()

    assert recorder.commands == [["ctr", "images", "import", "broker.tar"]]


def test_a_kubeconfig_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ProviderError, match="set KUBECONFIG"):
        Existing(tmp_path / "none").up(1)


def test_an_unknown_provider_is_refused_with_those_there_are() -> None:
    with pytest.raises(ProviderError, match="harness, kind or existing"):
        provider("minikube")
