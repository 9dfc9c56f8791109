"""Settings: precedence of sources, refusals, and the table of the docs."""

import pytest
from pydantic import SecretStr

from penstock.node.config import (
    Address,
    ConfigurationError,
    Settings,
    StartError,
    load_settings,
    load_with_origins,
)
from penstock.node.config_table import table
from penstock.node.tls import check_tls


def test_the_defaults_are_for_this_machine_only():
    settings = load_settings(environment={})

    assert settings.address("grpc") == Address("127.0.0.1", 5680)
    later = [settings.address("http"), settings.address("metrics")]
    assert later == [Address("127.0.0.1", port) for port in (15672, 15692)]
    assert settings.address("amqp") == Address("127.0.0.1", 5672)
    assert settings.address("amqp_ws") is None
    assert settings.message_bytes_max == 16 * 1024 * 1024
    assert settings.threads >= 1


def test_amqp_has_its_port_of_tls_with_a_certificate_unless_it_is_set():
    tls = {"PENSTOCK_TLS_CERTIFICATE": "tls.crt", "PENSTOCK_TLS_KEY": "tls.key"}

    assert load_settings(environment=tls).address("amqp") == Address("127.0.0.1", 5671)
    assert load_settings(flags={"amqp": "0.0.0.0:5672"}, environment=tls).address("amqp") == Address("0.0.0.0", 5672)
    assert load_settings(flags={"amqp": "off"}, environment=tls).address("amqp") is None


def test_amqp_is_off_with_grpc_unless_it_is_set():
    assert load_settings(flags={"grpc": "off"}, environment={}).address("amqp") is None
    both = load_settings(flags={"grpc": "off", "amqp": "127.0.0.1:1"}, environment={})
    assert both.address("amqp") == Address("127.0.0.1", 1)


def test_a_flag_counts_more_than_the_environment_and_that_more_than_the_file(tmp_path):
    path = tmp_path / "penstock.toml"
    path.write_text('grpc = "127.0.0.1:1"\nhttp = "127.0.0.1:2"\nmetrics = "off"\nio_threads = 3\n')
    environment = {"PENSTOCK_GRPC": "127.0.0.1:3", "PENSTOCK_HTTP": "127.0.0.1:4", "PATH": "/bin"}

    settings = load_settings(path, {"grpc": "127.0.0.1:5", "http": None}, environment)

    assert str(settings.address("grpc")) == "127.0.0.1:5"
    assert str(settings.address("http")) == "127.0.0.1:4"
    assert settings.address("metrics") is None
    assert settings.threads == 3


@pytest.mark.parametrize(
    ("file", "environment", "flags", "parts"),
    [
        ("grcp = 'x'", {}, {}, ["'grcp'", "penstock.toml", "did you mean 'grpc'?"]),
        ("", {"PENSTOCK_GRCP": "x"}, {}, ["'grcp'", "PENSTOCK_GRCP"]),
        ("", {"PENSTOCK_CONFIG": "penstock.toml"}, {}, ["'config'", "PENSTOCK_CONFIG"]),
        ("", {}, {"grpc": "nowhere"}, ["'grpc'", "--grpc", "HOST:PORT"]),
        ("", {}, {"grpc": "h:70000"}, ["70000"]),
        ("", {"PENSTOCK_IO_THREADS": "many"}, {}, ["'io_threads'", "PENSTOCK_IO_THREADS"]),
        ("message_bytes_max = 999999999999", {}, {}, ["'message_bytes_max'", "at most 536870912"]),
        ("segment_idle_seconds = 0", {}, {}, ["'segment_idle_seconds'", "at least 1"]),
        ("grpc = 5680", {}, {}, ["'grpc'", "it must be text in quotes"]),
        ("data_dir = 1", {}, {}, ["'data_dir'", "it must be a path in quotes"]),
        ("metrics_tls = 'maybe'", {}, {}, ["'metrics_tls'", "it must be true or false"]),
        ("drain_seconds = 'long'", {}, {}, ["'drain_seconds'", "it must be a number"]),
        ("drain_seconds = nan", {}, {}, ["'drain_seconds'"]),
        ("", {}, {"log_level": "loud"}, ["--log-level", "it must be 'debug', 'info', 'warning' or 'error'"]),
        ("zzz = 1", {}, {}, ["'zzz'", "penstock config show"]),
        ("segment_bytes_max = 65536", {}, {}, ["segment_bytes_min is larger"]),
        ("amqp_ws_origins = '*, app.example.com'", {}, {}, ["'amqp_ws_origins'", "'app.example.com' is not an origin"]),
        ("broken", {}, {}, ["not TOML"]),
    ],
)
def test_what_is_wrong_is_named_with_where_it_was_set(tmp_path, file, environment, flags, parts):
    path = tmp_path / "penstock.toml"
    path.write_text(file)

    with pytest.raises(ConfigurationError) as caught:
        load_settings(path, flags, environment)

    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_settings_are_told_with_where_they_come_from(tmp_path):
    path = tmp_path / "penstock.toml"
    path.write_text("io_threads = 3")

    settings, origins = load_with_origins(path, {}, {"PENSTOCK_GRPC": "127.0.0.1:3"})

    assert (settings.io_threads, settings.grpc) == (3, "127.0.0.1:3")
    assert origins == {"io_threads": f"in {path}", "grpc": "in the variable PENSTOCK_GRPC"}


def test_every_problem_is_told_at_once():
    with pytest.raises(ConfigurationError) as caught:
        load_settings(flags={"grpc": "x", "amqp": "y"}, environment={})

    assert len(str(caught.value).splitlines()) == 2


def test_what_kubernetes_says_of_a_service_called_penstock_is_no_setting():
    environment = {
        "PENSTOCK_SERVICE_HOST": "10.0.0.1",
        "PENSTOCK_SERVICE_PORT": "5680",
        "PENSTOCK_SERVICE_PORT_GRPC": "5680",
        "PENSTOCK_PORT": "tcp://10.0.0.1:5680",
        "PENSTOCK_PORT_5680_TCP": "tcp://10.0.0.1:5680",
        "PENSTOCK_PORT_5680_TCP_ADDR": "10.0.0.1",
        "PENSTOCK_URI": "penstock://localhost/",
        "PENSTOCK_CONTEXT": "prod",
        "PENSTOCK_PASSWORD": "secret",
    }

    assert load_settings(environment=environment) == load_settings(environment={})


def test_a_password_is_not_shown():
    settings = load_settings(flags={"default_password": "hidden-word"}, environment={})

    assert settings.default_password == SecretStr("hidden-word")
    assert "hidden-word" not in repr(settings)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"none\.toml"):
        load_settings(tmp_path / "none.toml", environment={})


def test_a_file_that_cannot_be_read_is_refused_in_words(tmp_path):
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    found = {}
    for name in ("none.toml", ".", "latin.toml"):
        with pytest.raises(ConfigurationError) as caught:
            load_settings(tmp_path / name, environment={})
        found[name] = str(caught.value).removeprefix(f"the configuration file {tmp_path / name} ")

    assert found == {
        "none.toml": "cannot be read: no such file or directory",
        ".": "cannot be read: is a directory",
        "latin.toml": "is not UTF-8; save it as UTF-8",
    }


@pytest.mark.parametrize(
    ("certificate", "words"),
    [(None, "': no such file or directory"), ("no PEM", "there is no PEM certificate in it")],
)
def test_tls_files_are_checked_without_a_start(tmp_path, certificate, words):
    file = tmp_path / "broker.crt"
    if certificate is not None:
        file.write_text(certificate)
    settings = load_settings(flags={"tls_certificate": file, "tls_key": file}, environment={})

    with pytest.raises(StartError) as caught:
        check_tls(settings)

    assert words in str(caught.value)
    assert "Errno" not in str(caught.value)


@pytest.mark.parametrize(("text", "host"), [("[::1]:5680", "::1"), ("broker.local:5680", "broker.local")])
def test_an_address_may_be_of_any_kind(text, host):
    address = load_settings(flags={"grpc": text}, environment={}).address("grpc")

    assert address == Address(host, 5680)
    assert str(address) == text


def test_the_table_has_a_row_with_a_description_for_every_setting():
    rows = table().splitlines()[2:]

    assert len(rows) == len(Settings.model_fields)
    for key, row in zip(Settings.model_fields, rows, strict=True):
        assert f"| `{key}` | `PENSTOCK_{key.upper()}` |" in row
        assert "None" not in row
