"""The broker's settings as fields of a Cluster's `spec.config`.

Absent fields leave the broker's defaults. A test compares this module with the broker's settings.
"""
# Generated from penstock/node/config.py by `make crds`; edit that file instead.

from typing import Final, Literal

from pydantic import Field

from penstock_operator.api.fields import Model, SecretValue, Setting

HOT: Final = frozenset(["drain_seconds", "log_level"])
"""Settings that the broker reads again when the file changes."""
SECRET: Final = frozenset(["metrics_token"])
"""Settings that only a Secret has."""
OWNED: Final = {
    "data_dir": "it is on the volume; set spec.storage instead",
    "grpc": "the port is the one of the Service; set spec.service instead",
    "amqp": "the port is the one of the Service; set spec.service.amqp instead",
    "amqp_socket": "the container has no other processes; leave it out",
    "amqp_ws": "the Service has no port for it; leave it out",
    "amqp_ws_origins": "the Service has no port for it; leave it out",
    "http": "the broker does not serve it yet; leave it out",
    "metrics": "probes and the Service use the port; leave it out",
    "tls_certificate": "it belongs to TLS; set spec.tls instead",
    "tls_key": "it belongs to TLS; set spec.tls instead",
    "tls_client_ca": "it belongs to TLS; set spec.tls.clientCertificates instead",
    "tls_client_auth": "it belongs to TLS; set spec.tls.clientCertificates instead",
    "tls_client_user": "it belongs to TLS; set spec.tls.clientCertificates instead",
    "tls_version_min": "it belongs to TLS; set spec.tls.versionMin instead",
    "metrics_tls": "probes read health in plaintext; leave it out",
    "default_user": "the operator makes the administrator; apply a User for others",
    "default_password": "the operator makes the administrator; apply a User for others",
    "default_password_file": "the operator makes the administrator; apply a User for others",
    "default_password_grace_seconds": "the operator makes the administrator; apply a User for others",
    "cluster": "the operator runs one broker for each Cluster; leave it out",
    "cluster_broker": "the operator runs one broker for each Cluster; leave it out",
    "cluster_brokers": "the operator runs one broker for each Cluster; leave it out",
    "cluster_coordinator": "the operator runs one broker for each Cluster; leave it out",
    "cluster_peers": "the operator runs one broker for each Cluster; leave it out",
    "cluster_secret_file": "the operator runs one broker for each Cluster; leave it out",
    "cluster_tls_certificate": "the operator runs one broker for each Cluster; leave it out",
    "cluster_tls_key": "the operator runs one broker for each Cluster; leave it out",
    "cluster_tls_ca": "the operator runs one broker for each Cluster; leave it out",
    "cluster_tls_name": "the operator runs one broker for each Cluster; leave it out",
    "cluster_scrub_hours": "the operator runs one broker for each Cluster; leave it out",
}
"""Settings that the operator sets, with what to do instead."""


class BrokerConfig(Model):
    """Settings of the broker, with its defaults."""

    data_dir: Setting | None = Field(None, description="Refused: it is on the volume; set spec.storage instead.")
    archive_dir: Setting | None = Field(
        None, description="Directory of stream archives written by 'penstock pipeline'."
    )
    grpc: Setting | None = Field(
        None, description="Refused: the port is the one of the Service; set spec.service instead."
    )
    amqp: Setting | None = Field(
        None, description="Refused: the port is the one of the Service; set spec.service.amqp instead."
    )
    amqp_socket: Setting | None = Field(
        None, description="Refused: the container has no other processes; leave it out."
    )
    amqp_ws: Setting | None = Field(None, description="Refused: the Service has no port for it; leave it out.")
    amqp_ws_origins: Setting | None = Field(None, description="Refused: the Service has no port for it; leave it out.")
    http: Setting | None = Field(None, description="Refused: the broker does not serve it yet; leave it out.")
    metrics: Setting | None = Field(None, description="Refused: probes and the Service use the port; leave it out.")
    log_level: Literal["debug", "info", "warning", "error"] | None = Field(
        None, description="Minimum log level. No restart needed."
    )
    log_format: Literal["auto", "console", "json"] | None = Field(
        None, description="'console' or 'json'; 'auto' is 'console' at a terminal and 'json' otherwise."
    )
    message_bytes_max: int | None = Field(
        None,
        ge=1024,
        le=536870912,
        description="Maximum size of a message. Larger ones are refused before they are buffered.",
    )
    buffer_bytes_max: int | None = Field(
        None,
        ge=0,
        le=1099511627776,
        description="Maximum bytes of requests that are not stored yet and of responses that wait for clients; 0 "
        "means a quarter of the memory that the broker may use, or four of the largest requests if that "
        "is more.",
    )
    segment_bytes_min: int | None = Field(None, ge=65536, le=1073741824, description="Size of a log's first segment.")
    segment_bytes_max: int | None = Field(
        None, ge=65536, le=1073741824, description="Maximum size of a segment; sizes double up to it."
    )
    segment_idle_seconds: float | None = Field(
        None, ge=1, le=86400, description="Unmap a segment that was not read for this long."
    )
    disk_free_bytes_min: int | None = Field(
        None,
        ge=0,
        le=1125899906842624,
        description="Refuse publishers while the disk has less free space; at least two segments are reserved.",
    )
    compaction_bytes_per_second: int | None = Field(
        None,
        ge=0,
        le=68719476736,
        description="Rate of compaction, up to eight times as fast while the log takes far more than its live "
        "messages; 0 turns it off.",
    )
    producer_memory_days: float | None = Field(
        None,
        ge=0,
        le=3650,
        description="Forget producer names that are unused for this long, with their sequences; 0 keeps them forever.",
    )
    producers_per_user_max: int | None = Field(
        None,
        ge=1,
        le=65536,
        description="Maximum producer names of one user in a virtual host, which keeps 65,536 names.",
    )
    tls_certificate: Setting | None = Field(None, description="Refused: it belongs to TLS; set spec.tls instead.")
    tls_key: Setting | None = Field(None, description="Refused: it belongs to TLS; set spec.tls instead.")
    tls_names_dir: Setting | None = Field(
        None, description="Directory with HOST.crt and HOST.key for each HOST requested by SNI, or '*.example.com'."
    )
    tls_client_ca: Setting | None = Field(
        None, description="Refused: it belongs to TLS; set spec.tls.clientCertificates instead."
    )
    tls_client_auth: Setting | None = Field(
        None, description="Refused: it belongs to TLS; set spec.tls.clientCertificates instead."
    )
    tls_client_user: Setting | None = Field(
        None, description="Refused: it belongs to TLS; set spec.tls.clientCertificates instead."
    )
    tls_version_min: Setting | None = Field(
        None, description="Refused: it belongs to TLS; set spec.tls.versionMin instead."
    )
    metrics_tls: bool | None = Field(None, description="Refused: probes read health in plaintext; leave it out.")
    metrics_names: Literal["off", "vhost", "all"] | None = Field(
        None,
        description="Names in /metrics: of virtual hosts; 'all' adds partitions and groups of streams, 'off' has no "
        "names.",
    )
    metrics_token: SecretValue | None = Field(
        None, description="Bearer token that a scrape of /metrics needs; empty to need none."
    )
    io_threads: int | None = Field(
        None, ge=0, le=256, description="Threads that serve connections; 0 means one per two CPUs, at most 8."
    )
    connections_max: int | None = Field(
        None,
        ge=0,
        le=10000000,
        description="Maximum open connections; 0 means nine tenths of the process's limit of open files.",
    )
    proxy_addresses: Setting | None = Field(
        None,
        description="IP addresses and networks of proxies, separated by commas: their connections begin with a "
        "header of the PROXY protocol, version 1 or 2, which names the client. A header from another "
        "address is refused, and logged. Empty to accept none.",
    )
    streams_per_connection_max: int | None = Field(
        None, ge=1, le=1000000, description="Maximum open streams and calls per connection."
    )
    first_request_seconds: float | None = Field(
        None,
        ge=0.1,
        le=600,
        description="Time limit for each step of a connection: the header of a proxy, a TLS handshake, the first "
        "log-in, over AMQP the virtual host after it, and a request's first message (plus a second for "
        "each 64 KiB of it). The broker closes slower connections.",
    )
    drain_seconds: float | None = Field(
        None, ge=0, le=3600, description="How long a stop waits for clients to end their streams. No restart needed."
    )
    default_user: Setting | None = Field(
        None, description="Refused: the operator makes the administrator; apply a User for others."
    )
    default_vhost_shards: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Shards of the virtual host '/' in a new data directory: logs that its queues share. 'penstock "
        "vhost set-shards' adds some later.",
    )
    default_password: Setting | None = Field(
        None, description="Refused: the operator makes the administrator; apply a User for others."
    )
    default_password_file: Setting | None = Field(
        None, description="Refused: the operator makes the administrator; apply a User for others."
    )
    default_password_grace_seconds: Setting | None = Field(
        None, description="Refused: the operator makes the administrator; apply a User for others."
    )
    auth_backends: Setting | None = Field(
        None, description="Authentication back ends in order: 'local', 'jwt' and 'http', separated by commas."
    )
    jwt_issuer: Setting | None = Field(
        None, description="Issuer ('iss') of tokens; its discovery document has their keys."
    )
    jwt_jwks_url: Setting | None = Field(None, description="URL of the keys of tokens; empty to ask the issuer.")
    jwt_audience: Setting | None = Field(None, description="Required 'aud' of tokens, RabbitMQ's 'resource_server_id'.")
    jwt_scope_prefix: Setting | None = Field(
        None, description="Prefix of scopes for this broker; 'auto' is 'jwt_audience' and a dot."
    )
    jwt_username_claims: Setting | None = Field(
        None, description="Claims for the user name; the first one in the token is used."
    )
    jwt_scope_claims: Setting | None = Field(
        None, description="More claims with scopes, beside 'scope' and 'resource_access'."
    )
    jwt_clock_skew_seconds: float | None = Field(
        None, ge=0, le=600, description="Allowed difference between the issuer's clock and the broker's."
    )
    jwt_jwks_cache_seconds: float | None = Field(
        None, ge=10, le=604800, description="How long keys of tokens are cached; an unknown key is fetched at once."
    )
    http_auth_user_url: Setting | None = Field(
        None, description="URL that authenticates a user, as RabbitMQ's 'auth_http.user_path' by POST."
    )
    http_auth_vhost_url: Setting | None = Field(None, description="URL that authorizes access to a virtual host.")
    http_auth_resource_url: Setting | None = Field(
        None, description="URL that authorizes access to a queue or an exchange."
    )
    http_auth_topic_url: Setting | None = Field(
        None, description="URL that authorizes routing keys of a topic exchange; empty to allow all keys."
    )
    http_auth_cache_seconds: float | None = Field(None, ge=1, le=3600, description="How long responses are cached.")
    auth_timeout_seconds: float | None = Field(
        None, ge=0.1, le=60, description="Timeout of a request for keys or authorization."
    )
    cluster: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_broker: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_brokers: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_coordinator: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_peers: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_secret_file: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_tls_certificate: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_tls_key: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_tls_ca: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_tls_name: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
    cluster_scrub_hours: Setting | None = Field(
        None, description="Refused: the operator runs one broker for each Cluster; leave it out."
    )
