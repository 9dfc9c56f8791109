"""Rules for the settings of a broker in a cluster."""

from pathlib import Path
from typing import Any

import pytest

from penstock.node.config import ConfigurationError, StartError, load_settings
from penstock.node.in_cluster.membership import read_secrets

FITTING: dict[str, Any] = {
    "cluster": "orders",
    "cluster_broker": "mq-0",
    "cluster_brokers": "mq-0=127.0.0.1:5681, mq-1=[::1]:5681, mq-2=mq-2.example:5681",
    "cluster_coordinator": "file:/tmp/orders",
    "cluster_secret_file": "secret",
}
TLS = {f"cluster_tls_{name}": f"{name}.pem" for name in ("certificate", "key", "ca")}


def problem_of(**changes: Any) -> str:
    flags = {name: value for name, value in {**FITTING, **changes}.items() if value is not None}
    with pytest.raises(ConfigurationError) as refused:
        load_settings(None, flags, {})
    return str(refused.value)


def test_settings_that_fit_are_taken() -> None:
    assert load_settings(None, FITTING, {}).cluster == "orders"
    assert load_settings(None, {**FITTING, **TLS, "cluster_peers": "0.0.0.0:5681"}, {}).cluster_tls_name == ""


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cluster": None}, "cluster_broker is of a broker in a cluster; set cluster, too"),
        ({"cluster_secret_file": None, "cluster_broker": None}, "cluster needs cluster_broker, cluster_secret_file;"),
        ({"cluster": "Orders!"}, "cluster is 'Orders!'; a name has up to 100"),
        ({"cluster_broker": "mq-9"}, "cluster_broker is 'mq-9', and cluster_brokers has mq-0, mq-1, mq-2; name one"),
        ({"cluster_brokers": "mq-0"}, "cluster_brokers has 'mq-0'; write each broker like mq-0=10.0.0.5:5681"),
        ({"cluster_brokers": "mq-0=a:1,mq-1=a:1"}, "has 'mq-1' or its address twice"),
        ({"cluster_coordinator": "single"}, "'single', which is of one broker"),
        ({"cluster_peers": "0.0.0.0:5681"}, "can be reached from other machines; set cluster_tls_certificate"),
        ({"cluster_tls_ca": "ca.pem"}, "belong together; set all or none"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_a_way_out(changes: dict[str, Any], words: str) -> None:
    assert words in problem_of(**changes)


def test_secrets_are_the_lines_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef\n\n  fedcba9876543210 \n")

    assert read_secrets(file) == ["0123456789abcdef", "fedcba9876543210"]


@pytest.mark.parametrize("content", ["", "\n", "0123456789abcdef\nshort\n"])
def test_a_file_without_a_usable_secret_is_refused(content: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(content)

    with pytest.raises(StartError, match="needs a secret of at least 16 characters on each line"):
        read_secrets(file)
