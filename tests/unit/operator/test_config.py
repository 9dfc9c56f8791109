"""`spec.config` has every setting of the broker, with its type; the operator's own are refused."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from penstock.node.config import Settings
from penstock_operator.api import ClusterSpec
from penstock_operator.api.broker_config import OWNED, SECRET
from penstock_operator.api.cluster import Config
from penstock_operator.desired.cluster_plan import plan
from penstock_operator.desired.configuration import config_hash, config_map, secret_environment, toml
from penstock_operator.desired.naming import Owner
from penstock_operator.desired.watching import service_monitor
from penstock_operator.desired.workload import stateful_set
from tools.generate_operator_config import CHART, MODULE, chart_schema, module

TOKEN = {"secretKeyRef": {"name": "scrape", "key": "token"}}


def owner(config: dict[str, Any], **more: Any) -> Owner:
    return Owner("mq", "shop", "uid", ClusterSpec.model_validate({"image": "penstock:test", "config": config, **more}))


def test_the_fields_are_those_of_the_broker_s_settings() -> None:
    assert module() == MODULE.read_text(), "run `make crds`"
    assert chart_schema(CHART.read_text()) == CHART.read_text(), "run `make crds`"
    assert set(Config.model_fields) == set(Settings.model_fields)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logLevel", "warning"),
        ("messageBytesMax", 1024),
        ("jwtClockSkewSeconds", 2.5),
        ("drainSeconds", 5),
        ("jwtIssuer", 'https://login.example/"a"\\b'),
        ("jwtScopePrefix", "größe."),
        ("archiveDir", "/archive"),
        ("metricsNames", "all"),
    ],
)
def test_a_setting_reaches_the_broker_with_its_type(key: str, value: Any) -> None:
    made = owner({key: value})
    found = Settings(**tomllib.loads(toml(made, plan(made))))

    name = next(name for name in Settings.model_fields if to_camel(name) == key)
    assert getattr(found, name) == (Path(value) if name.endswith("_dir") else value)


@pytest.mark.parametrize("key", sorted(OWNED))
def test_a_setting_of_the_operator_s_own_is_refused_with_what_to_do(key: str) -> None:
    value = True if key == "metrics_tls" else "x"

    with pytest.raises(ValidationError, match=f"{to_camel(key)} is set by the operator: .*; "):
        owner({to_camel(key): value})


def test_back_ends_that_shut_the_operator_out_are_refused() -> None:
    with pytest.raises(ValidationError, match="keep 'local' in authBackends"):
        owner({"authBackends": "jwt", "jwtAudience": "a", "jwtIssuer": "b"})


def test_a_secret_is_never_in_the_config_map_nor_in_the_manifests_in_plain() -> None:
    with_token = owner({"metricsToken": TOKEN})

    assert "metrics_token" not in toml(with_token, plan(with_token))
    assert config_map(with_token, plan(with_token)) == config_map(owner({}), plan(owner({})))
    assert secret_environment(with_token) == [
        {"name": "PENSTOCK_METRICS_TOKEN", "valueFrom": {"secretKeyRef": {"name": "scrape", "key": "token"}}}
    ]
    (container,) = stateful_set(with_token, plan(with_token))["spec"]["template"]["spec"]["containers"]
    assert secret_environment(with_token)[0] in container["env"]
    assert {"metrics_token"} == SECRET


def test_a_scrape_shows_the_token_that_the_broker_wants() -> None:
    manifest = service_monitor(owner({"metricsToken": TOKEN}, monitoring={"serviceMonitor": {"enabled": True}}))

    assert manifest is not None
    (endpoint,) = manifest["spec"]["endpoints"]
    assert endpoint["authorization"] == {"type": "Bearer", "credentials": {"name": "scrape", "key": "token"}}


@pytest.mark.parametrize("value", ["a\nb", "a\x00", "\x7f"])
def test_a_text_cannot_add_a_line_to_the_file(value: str) -> None:
    with pytest.raises(ValidationError):
        owner({"jwtIssuer": value})


def test_a_whole_number_is_written_as_one_so_that_an_upgrade_restarts_nothing() -> None:
    whole, drains, plain = owner({"segmentIdleSeconds": 60}), owner({"drainSeconds": 5}), owner({})

    assert "segment_idle_seconds = 60\n" in toml(whole, plan(whole))
    assert config_hash(drains, plan(drains)) == config_hash(plain, plan(plain))
