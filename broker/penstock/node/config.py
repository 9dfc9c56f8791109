"""The broker's settings: one model, from which the table in docs/configuration.md is generated.

Flags take precedence over the environment (PENSTOCK_*), and that over a TOML file; an unknown key is refused by name.
This module checks values and opens nothing.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

from penstock.node.cluster_settings import problem_of_cluster

KIB, MIB = 1024, 1024 * 1024
ENVIRONMENT_PREFIX = "PENSTOCK_"
# Names with the prefix that belong to the clients, not to the broker.
_CLIENT_VARIABLES = frozenset({"PENSTOCK_URI", "PENSTOCK_CONTEXT", "PENSTOCK_PASSWORD"})
BACKENDS = ("local", "jwt", "http")
# The default address of AMQP over TLS.
AMQPS_DEFAULT = "127.0.0.1:5671"
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^\s/?#@,]+")
_LISTENER = re.compile(r"(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>[^\s:\[\]/]+)):(?P<port>[0-9]{1,5})")


WANTED = {
    "string_type": "it must be text in quotes",
    "int_type": "it must be a whole number",
    "int_parsing": "it must be a whole number",
    "int_from_float": "it must be a whole number",
    "float_type": "it must be a number",
    "float_parsing": "it must be a number",
    "finite_number": "it must be a number",
    "bool_type": "it must be true or false",
    "bool_parsing": "it must be true or false",
    "path_type": "it must be a path in quotes",
    "literal_error": "it must be {expected}",
    "greater_than_equal": "it must be at least {ge}",
    "less_than_equal": "it must be at most {le}",
}
"""The explanation of a wrong value, by the type of pydantic's error."""


class ConfigurationError(Exception):
    """The settings cannot be used; each line of the text names one of them, the rule and where it was set."""


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Settings(BaseModel):
    """Every field is a key of the TOML file, a variable PENSTOCK_<KEY>, and those of `serve` are flags."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    data_dir: Path = Field(Path("./data"), description="Data directory. Only one broker at a time can use it.")
    archive_dir: Path | None = Field(None, description="Directory of stream archives written by `penstock pipeline`.")
    grpc: str = Field("127.0.0.1:5680", description="HOST:PORT of the gRPC listener, or `off`.")
    amqp: str = Field(
        "127.0.0.1:5672",
        description="HOST:PORT of the AMQP 0-9-1 listener, or `off`. With a certificate it serves TLS only, and the "
        "default is 127.0.0.1:5671.",
    )
    amqp_socket: Path | None = Field(
        None,
        description="Path of a Unix socket for AMQP 0-9-1, without TLS. The user and the group of the broker may "
        "connect.",
    )
    amqp_ws: str = Field(
        "off",
        description="HOST:PORT of the listener for AMQP 0-9-1 in WebSockets, or `off`. With a certificate it serves "
        "TLS only.",
    )
    amqp_ws_origins: str = Field(
        "",
        description="Origins of web pages that may open WebSockets on `amqp_ws` from browsers, such as "
        "`https://app.example.com`, separated by commas, or `*` for all. Pages of the broker's own host always may.",
    )
    http: str = Field("127.0.0.1:15672", description="HOST:PORT of the management API, or `off`. Not served yet.")
    metrics: str = Field("127.0.0.1:15692", description="HOST:PORT of /metrics and /health, or `off`.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Minimum log level. Read again when the file changes."
    )
    log_format: Literal["auto", "console", "json"] = Field(
        "auto", description="`console` or `json`; `auto` is `console` at a terminal and `json` otherwise."
    )
    message_bytes_max: int = Field(
        16 * MIB,
        ge=KIB,
        le=512 * MIB,
        description="Maximum size of a message. Larger ones are refused before they are buffered.",
    )
    buffer_bytes_max: int = Field(
        0,
        ge=0,
        le=1024**4,
        description="Maximum bytes of requests that are not stored yet and of responses that wait for clients; 0 means "
        "a quarter of the memory that the broker may use, or four of the largest requests if that is more.",
    )
    segment_bytes_min: int = Field(MIB, ge=64 * KIB, le=1024 * MIB, description="Size of a log's first segment.")
    segment_bytes_max: int = Field(
        64 * MIB, ge=64 * KIB, le=1024 * MIB, description="Maximum size of a segment; sizes double up to it."
    )
    segment_idle_seconds: float = Field(
        30.0, ge=1, le=86_400, description="Unmap a segment that was not read for this long."
    )
    disk_free_bytes_min: int = Field(
        64 * MIB,
        ge=0,
        le=1024**5,
        description="Refuse publishers while the disk has less free space; at least two segments are reserved.",
    )
    compaction_bytes_per_second: int = Field(
        16 * MIB,
        ge=0,
        le=64 * 1024 * MIB,
        description="Rate of compaction, up to eight times as fast while the log takes far "
        "more than its live messages; 0 turns it off.",
    )
    producer_memory_days: float = Field(
        7.0,
        ge=0,
        le=3_650,
        description="Forget producer names that are unused for this long, with their sequences; 0 keeps them forever.",
    )
    producers_per_user_max: int = Field(
        4_096,
        ge=1,
        le=65_536,
        description="Maximum producer names of one user in a virtual host, which keeps 65,536 names.",
    )
    tls_certificate: Path | None = Field(
        None,
        description="Certificate chain of the broker, PEM. Turns on TLS for gRPC and AMQP. Read again when it changes.",
    )
    tls_key: Path | None = Field(None, description="Private key of the certificate, PEM.")
    tls_names_dir: Path | None = Field(
        None,
        description="Directory with HOST.crt and HOST.key for each HOST requested by SNI, or `*.example.com`.",
    )
    tls_client_ca: Path | None = Field(None, description="CAs of client certificates, PEM.")
    tls_client_auth: Literal["none", "optional", "required"] = Field(
        "none", description="Whether clients present a certificate; `required` refuses clients without one."
    )
    tls_client_user: Literal["none", "cn", "san_dns", "san_email", "san_uri"] = Field(
        "none",
        description="Field of a client certificate that names a user, who then needs no password.",
    )
    tls_version_min: Literal["1.2", "1.3"] = Field("1.2", description="Minimum version of TLS.")
    metrics_tls: bool = Field(True, description="With a certificate, also serve /metrics and /health over TLS.")
    metrics_names: Literal["off", "vhost", "all"] = Field(
        "vhost",
        description="Names in /metrics: of virtual hosts; `all` adds partitions and groups of streams, `off` has no "
        "names.",
    )
    metrics_token: SecretStr = Field(
        SecretStr(""), description="Bearer token that a scrape of /metrics needs; empty to need none."
    )
    io_threads: int = Field(
        0, ge=0, le=256, description="Threads that serve connections; 0 means one per two CPUs, at most 8."
    )
    connections_max: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="Maximum open connections; 0 means nine tenths of the process's limit of open files.",
    )
    proxy_addresses: str = Field(
        "",
        description="IP addresses and networks of proxies, separated by commas: their connections begin with a header "
        "of the PROXY protocol, version 1 or 2, which names the client. A header from another address is refused, and "
        "logged. Empty to accept none.",
    )
    streams_per_connection_max: int = Field(
        1_000, ge=1, le=1_000_000, description="Maximum open streams and calls per connection."
    )
    first_request_seconds: float = Field(
        10.0,
        ge=0.1,
        le=600,
        description="Time limit for each step of a connection: the header of a proxy, a TLS handshake, the first "
        "log-in, over AMQP the virtual host after it, and a request's first message (plus a second for each 64 KiB of "
        "it). The broker closes slower connections.",
    )
    drain_seconds: float = Field(
        10.0,
        ge=0,
        le=3_600,
        description="How long a stop waits for clients to end their streams. Read again when the file changes.",
    )
    default_user: str = Field(
        "guest", description="User created in a new data directory; `guest` can only log in from loopback."
    )
    default_vhost_shards: int = Field(
        1,
        ge=1,
        le=64,
        description="Shards of the virtual host `/` in a new data directory: logs that its queues share. "
        "`penstock vhost set-shards` adds some later.",
    )
    default_password: SecretStr = Field(SecretStr("guest"), description="Initial password of that user.")
    default_password_file: Path | None = Field(
        None,
        description="File with the password of `default_user`, instead of `default_password`. Read again when it "
        "changes; the user keeps that password and the tag `administrator`.",
    )
    default_password_grace_seconds: float = Field(
        600.0,
        ge=0,
        le=86_400,
        description="How long the previous password is accepted after `default_password_file` changed.",
    )
    auth_backends: str = Field(
        "local", description="Authentication back ends in order: `local`, `jwt` and `http`, separated by commas."
    )
    jwt_issuer: str = Field("", description="Issuer (`iss`) of tokens; its discovery document has their keys.")
    jwt_jwks_url: str = Field("", description="URL of the keys of tokens; empty to ask the issuer.")
    jwt_audience: str = Field("", description="Required `aud` of tokens, RabbitMQ's `resource_server_id`.")
    jwt_scope_prefix: str = Field(
        "auto", description="Prefix of scopes for this broker; `auto` is `jwt_audience` and a dot."
    )
    jwt_username_claims: str = Field(
        "sub,client_id", description="Claims for the user name; the first one in the token is used."
    )
    jwt_scope_claims: str = Field("", description="More claims with scopes, beside `scope` and `resource_access`.")
    jwt_clock_skew_seconds: float = Field(
        10.0, ge=0, le=600, description="Allowed difference between the issuer's clock and the broker's."
    )
    jwt_jwks_cache_seconds: float = Field(
        3_600.0, ge=10, le=604_800, description="How long keys of tokens are cached; an unknown key is fetched at once."
    )
    http_auth_user_url: str = Field(
        "", description="URL that authenticates a user, as RabbitMQ's `auth_http.user_path` by POST."
    )
    http_auth_vhost_url: str = Field("", description="URL that authorizes access to a virtual host.")
    http_auth_resource_url: str = Field("", description="URL that authorizes access to a queue or an exchange.")
    http_auth_topic_url: str = Field(
        "", description="URL that authorizes routing keys of a topic exchange; empty to allow all keys."
    )
    http_auth_cache_seconds: float = Field(10.0, ge=1, le=3_600, description="How long responses are cached.")
    auth_timeout_seconds: float = Field(
        5.0, ge=0.1, le=60, description="Timeout of a request for keys or authorization."
    )

    cluster: str = Field("", description="Name of the cluster that the broker is one of; empty for a broker by itself.")
    cluster_broker: str = Field("", description="Name of this broker in its cluster, one of `cluster_brokers`.")
    cluster_brokers: str = Field(
        "",
        description="Brokers of the cluster with the addresses at which the others reach them, each as "
        "NAME=HOST:PORT, separated by commas. A new cluster begins with all of them.",
    )
    cluster_coordinator: str = Field(
        "",
        description="Where the cluster notes who leads: `etcd:http://HOST:2379,http://HOST:2379/PREFIX`, "
        "`kubernetes:CLUSTER`, or `file:DIRECTORY` for brokers on one machine.",
    )
    cluster_peers: str = Field("127.0.0.1:5681", description="HOST:PORT of the listener for the cluster's brokers.")
    cluster_secret_file: Path | None = Field(
        None,
        description="File with the secrets by which the cluster's brokers know each other, one a line. The first one "
        "is sent, and all are accepted. Read again when it changes.",
    )
    cluster_tls_certificate: Path | None = Field(
        None, description="Certificate chain that the broker shows to the cluster's brokers, PEM."
    )
    cluster_tls_key: Path | None = Field(None, description="Private key of that certificate, PEM.")
    cluster_tls_ca: Path | None = Field(None, description="CA of the certificates of the cluster's brokers, PEM.")
    cluster_tls_name: str = Field(
        "", description="Name that the certificates of all brokers have; empty for the host of each address."
    )
    cluster_scrub_hours: float = Field(
        24.0,
        ge=0,
        le=8760,
        description="Hours after which the logs of a broker in a cluster are checked on the disk again; 0 for never.",
    )

    @field_validator("proxy_addresses")
    @classmethod
    def _check_proxies(cls, value: str) -> str:
        for word in words(value):
            try:
                ip_network(word, strict=False)
            except ValueError as error:
                raise ValueError(f"{word!r} is not an IP address or a network such as 10.0.0.0/8") from error
        return value

    @field_validator("amqp_ws_origins")
    @classmethod
    def _check_origins(cls, value: str) -> str:
        for word in words(value):
            if word != "*" and not _ORIGIN.fullmatch(word):
                raise ValueError(f"{word!r} is not an origin such as https://app.example.com, nor *")
        return value

    @field_validator("cluster_peers")
    @classmethod
    def _check_peers(cls, value: str) -> str:
        _address(value)
        return value

    @field_validator("grpc", "amqp", "amqp_ws", "http", "metrics")
    @classmethod
    def _check_listener(cls, value: str) -> str:
        if value != "off":
            _address(value)
        return value

    @model_validator(mode="after")
    def _check_segments(self) -> Self:
        if self.segment_bytes_min > self.segment_bytes_max:
            raise ValueError("segment_bytes_min is larger than segment_bytes_max; make it smaller")
        return self

    @model_validator(mode="after")
    def _check_password(self) -> Self:
        if self.default_password_file is not None and "default_password" in self.model_fields_set:
            raise ValueError("default_password and default_password_file exclude each other; set one of them")
        return self

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key belong together; set both or none")
        if self.tls_certificate is None and (self.tls_names_dir or self.tls_client_ca):
            raise ValueError("tls_names_dir and tls_client_ca need tls_certificate and tls_key; set them")
        if self.tls_client_user != "none" and self.tls_client_ca is None:
            raise ValueError("tls_client_user needs tls_client_ca, who vouches for the names; set it")
        if (self.tls_client_auth == "none") != (self.tls_client_ca is None):
            raise ValueError(
                "tls_client_ca and tls_client_auth (optional or required) belong together; set both or none"
            )
        return self

    @model_validator(mode="after")
    def _check_backends(self) -> Self:
        wanted = self.backends
        unknown = [name for name in wanted if name not in BACKENDS]
        if unknown or not wanted or len(set(wanted)) != len(wanted):
            raise ValueError(
                f"auth_backends is {self.auth_backends!r}; name each of {', '.join(BACKENDS)} at most once"
            )
        if "jwt" in wanted and not (self.jwt_issuer or self.jwt_jwks_url):
            raise ValueError("auth_backends has jwt, and nothing says where keys are; set jwt_issuer or jwt_jwks_url")
        if "jwt" in wanted and not self.jwt_audience:
            raise ValueError("auth_backends has jwt without jwt_audience: tokens for other services would be let in")
        if "http" in wanted:
            _check_urls(
                self.http_auth_user_url,
                self.http_auth_vhost_url,
                self.http_auth_resource_url,
                self.http_auth_topic_url or self.http_auth_resource_url,
            )
        return self

    @model_validator(mode="after")
    def _check_cluster(self) -> Self:
        problem = problem_of_cluster(dict(self), self.model_fields_set)
        if problem:
            raise ValueError(problem)
        return self

    @property
    def backends(self) -> tuple[str, ...]:
        """In the order in which they are asked."""
        return words(self.auth_backends)

    @property
    def proxies(self) -> tuple[str, ...]:
        return words(self.proxy_addresses)

    @property
    def web_origins(self) -> tuple[str, ...]:
        return words(self.amqp_ws_origins)

    @property
    def threads(self) -> int:
        return self.io_threads or min(8, max(1, (os.cpu_count() or 1) // 2))

    def address(self, listener: Literal["grpc", "amqp", "amqp_ws", "http", "metrics"]) -> Address | None:
        """None when it is off."""
        value: str = getattr(self, listener)
        if listener == "amqp" and "amqp" not in self.model_fields_set:
            # The listeners of AMQP need the one of gRPC.
            value = "off" if self.grpc == "off" else AMQPS_DEFAULT if self.tls_certificate else value
        return None if value == "off" else _address(value)

    def unsupported_listeners(self) -> list[str]:
        """Return the listeners that were given an address and are not served yet."""
        return [name for name in ("http",) if name in self.model_fields_set and getattr(self, name) != "off"]


def words(text: str) -> tuple[str, ...]:
    """Split a value at its commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def load_settings(
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Merge the three sources; a flag that is None was not given. Raises ConfigurationError."""
    return load_with_origins(config_file, flags, environment)[0]


def load_with_origins(
    config_file: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[Settings, Mapping[str, str]]:
    """Load the settings, and return with them the source of each that is not a default. Raises ConfigurationError."""
    from_file = _read_file(config_file) if config_file is not None else {}
    from_environment = _read_environment(os.environ if environment is None else environment)
    from_flags = {key: value for key, value in (flags or {}).items() if value is not None}
    origins = {
        **dict.fromkeys(from_file, f"in {config_file}"),
        **{key: f"in the variable {ENVIRONMENT_PREFIX}{key.upper()}" for key in from_environment},
        **{key: f"in the flag --{key.replace('_', '-')}" for key in from_flags},
    }
    try:
        return Settings(**{**from_file, **from_environment, **from_flags}), origins
    except ValidationError as error:
        raise ConfigurationError("\n".join(_explained(error, origins))) from error


def _read_file(path: Path) -> dict[str, Any]:
    try:
        content = path.read_text(encoding="utf-8")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ConfigurationError(f"the configuration file {path} cannot be read: {why}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"the configuration file {path} is not UTF-8; save it as UTF-8") from error
    try:
        return tomllib.loads(content)
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"the configuration file {path} is not TOML: {error}") from error


def _read_environment(environment: Mapping[str, str]) -> dict[str, str]:
    found = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _CLIENT_VARIABLES
    }
    # Kubernetes puts PENSTOCK_PORT, PENSTOCK_SERVICE_HOST and their like beside a service called penstock.
    return {key: value for key, value in found.items() if not _is_service_link(key)}


def _is_service_link(key: str) -> bool:
    return (
        re.fullmatch(r"(?:.*_)?(?:service_host|service_port(?:_.*)?|port(?:_[0-9]+_(?:tcp|udp).*)?)", key) is not None
    )


def _explained(error: ValidationError, origins: Mapping[str, str]) -> list[str]:
    lines: list[str] = []
    for problem in error.errors(include_url=False, include_input=False):
        key = ".".join(str(part) for part in problem["loc"])
        origin = origins.get(key, "in the settings")
        if problem["type"] == "extra_forbidden":
            close = get_close_matches(key, Settings.model_fields, 1)
            hint = f"did you mean {close[0]!r}?" if close else "`penstock config show` lists all settings"
            lines.append(f"there is no setting {key!r} ({origin}); {hint}")
        else:
            wanted = WANTED.get(problem["type"])
            text = wanted.format(**problem.get("ctx", {})) if wanted else problem["msg"].removeprefix("Value error, ")
            lines.append(f"the setting {key!r} ({origin}) is invalid: {text}" if key else f"the settings clash: {text}")
    return lines


def _check_urls(*urls: str) -> None:
    if not all(url.startswith(("http://", "https://")) for url in urls):
        raise ValueError(
            "auth_backends has http, but one of http_auth_user_url, _vhost_url, _resource_url and _topic_url is not "
            "a URL"
        )


def _address(value: str) -> Address:
    match = _LISTENER.fullmatch(value)
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(f"{value!r} is neither HOST:PORT nor `off`; write it like 127.0.0.1:5680 or [::1]:5680")
    return Address(match["six"] or match["host"], int(match["port"]))
