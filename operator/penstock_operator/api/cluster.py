"""The Cluster kind: a broker on Kubernetes.

Only supported settings have a field; the API server refuses unknown fields.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.fields import Labels, Model, ObjectName, Passed, Quantity, part, rule, rules

ListOfPassed = Annotated[list[Passed], Field(max_length=64)]


class SecretName(Model):
    """A Secret in the Cluster's namespace."""

    name: ObjectName


class Retain(Model):
    """The fate of the volume."""

    when_deleted: Literal["Retain", "Delete"] = Field(
        "Retain", description="Whether deleting the Cluster keeps the volume. Delete also deletes all messages."
    )


class Storage(Model):
    """The volume for the messages."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "quantity(self.size).compareTo(quantity(oldSelf.size)) >= 0",
                "size cannot shrink; write the old size or a larger one",
            ),
            rule("self.mode == oldSelf.mode", "mode cannot be changed; make another Cluster and move the messages"),
            rule(
                "has(self.storageClassName) == has(oldSelf.storageClassName)"
                " && (!has(self.storageClassName) || self.storageClassName == oldSelf.storageClassName)",
                "storageClassName cannot be changed; make another Cluster and move the messages",
            ),
        )
    )

    size: Quantity = Field("10Gi", description="Size of the volume. It can grow if the storage class supports it.")
    storage_class_name: ObjectName | None = Field(
        None, description="Storage class. Default: that of the Kubernetes cluster."
    )
    mode: Literal["pvc", "emptyDir"] = Field(
        "pvc", description="emptyDir loses all messages with the pod. For tests only."
    )
    retain: Retain = part(Retain)
    loss_policy: Literal["Auto", "Manual"] = Field(
        "Auto",
        description="Action when the broker started empty. Auto: declare everything in the manifests again. Manual:"
        " stay not ready, and declare nothing, until the annotation penstock.dev/data-loss-seen is set.",
    )


class Resources(Model):
    """Resources of the broker's container. Request as much memory as the limit, and set no CPU limit."""

    requests: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"cpu": "500m", "memory": "512Mi"})
    limits: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"memory": "512Mi"})


class Config(Model):
    """Settings of the broker, with its defaults. A change restarts the broker once, unless a field says otherwise."""

    log_level: Literal["debug", "info", "warning", "error"] | None = Field(
        None, description="Minimum log level. No restart needed."
    )
    message_bytes_max: int | None = Field(None, ge=1024, le=512 * 1024**2, description="Maximum size of a message.")
    segment_bytes_min: int | None = Field(None, ge=64 * 1024, le=1024**3, description="Size of a log's first segment.")
    segment_bytes_max: int | None = Field(None, ge=64 * 1024, le=1024**3, description="Maximum size of a segment.")
    segment_idle_seconds: int | None = Field(
        None, ge=1, le=86_400, description="Unmap a segment that was not read for this long."
    )
    disk_free_bytes_min: int | None = Field(
        None, ge=0, le=1024**5, description="Refuse publishers while the disk has less free space."
    )
    compaction_bytes_per_second: int | None = Field(
        None, ge=0, le=64 * 1024**3, description="Maximum rate of compaction; 0 turns it off."
    )
    producer_memory_days: int | None = Field(
        None, ge=0, le=3_650, description="Forget producer names unused for this long; 0 keeps them forever."
    )
    io_threads: int | None = Field(
        None, ge=0, le=256, description="Threads that serve connections; 0 means one per two CPUs, at most 8."
    )
    drain_seconds: int | None = Field(
        None,
        ge=0,
        le=3_600,
        description="How long a stop waits for clients to end their streams. No restart needed.",
    )


class Service(Model):
    """The Service that clients use."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Labels = Field(default_factory=dict)


class Scheduling(Model):
    """The nodes that the broker may run on."""

    node_selector: Labels = Field(default_factory=dict)
    tolerations: ListOfPassed = Field(default_factory=list)
    affinity: Passed | None = None
    priority_class_name: ObjectName | None = None


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: ObjectName
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"


class Issued(Model):
    """A certificate that cert-manager creates and stores in the Secret."""

    issuer_ref: IssuerRef


class ClientCertificates(Model):
    """Client certificates. The operator needs one, too."""

    auth: Literal["optional", "required"] = Field("required", description="Whether clients must present a certificate.")
    authority_secret_name: ObjectName = Field(
        description="A Secret with the CAs of client certificates in its key `ca.crt`."
    )
    operator_secret_name: ObjectName = Field(
        description="A Secret of the type kubernetes.io/tls: the operator's certificate."
    )
    user: Literal["none", "cn", "san_dns", "san_email", "san_uri"] = Field(
        "none", description="The field of a client certificate that names a user, who then needs no password."
    )


class Tls(Model):
    """TLS. Only health and metrics stay in plaintext. A changed certificate takes effect without a restart."""

    secret_name: ObjectName = Field(
        description="A Secret of the type kubernetes.io/tls; clients and the operator trust its key `ca.crt`."
    )
    cert_manager: Issued | None = None
    version_min: Literal["1.2", "1.3"] = Field("1.2", description="Minimum version of TLS.")
    client_certificates: ClientCertificates | None = Field(None, description="Client certificates.")


class Switch(Model):
    """On or off."""

    enabled: bool = False


class NetworkPolicy(Model):
    """The pods that may connect."""

    enabled: bool = False
    allowed_clients: ListOfPassed = Field(
        default_factory=list,
        description="NetworkPolicyPeers that may publish and consume. Empty: all pods in the namespace.",
    )


class ServiceMonitor(Model):
    """A ServiceMonitor for the Prometheus operator. A condition reports missing CRDs."""

    enabled: bool = False
    interval: Annotated[str, Field(max_length=16, pattern="^[0-9]+(ms|s|m|h)$")] = "15s"
    labels: Labels = Field(default_factory=dict)


class PrometheusRule(Model):
    """The alerts that docs/kubernetes.md lists."""

    enabled: bool = False
    labels: Labels = Field(default_factory=dict)


class Monitoring(Model):
    """Metrics and alerts."""

    service_monitor: ServiceMonitor = part(ServiceMonitor)
    prometheus_rule: PrometheusRule = part(PrometheusRule)


class AllowedNamespaces(Model):
    """The namespaces whose objects may use this Cluster."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.from == 'Selector') == has(self.matchLabels)",
                "matchLabels belongs to from: Selector; write both or neither",
            )
        )
    )

    from_: Literal["Same", "All", "Selector"] = Field(
        "Same", alias="from", description="Same: only the Cluster's own namespace."
    )
    match_labels: Labels | None = Field(None, description="Labels that a namespace must have.")


class Topology(Model):
    """Queues, users and other objects in this Cluster."""

    allowed_namespaces: AllowedNamespaces = part(AllowedNamespaces)


class ClusterSpec(Model):
    """One broker, its volume and its Services."""

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")] = Field(
        description="The broker's image, with its tag."
    )
    image_pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    image_pull_secrets: Annotated[list[SecretName], Field(max_length=16)] = Field(default_factory=list)
    replicas: int = Field(
        1,
        ge=0,
        le=99,
        description="1, or 0 to stop the broker and keep its volume.",
        json_schema_extra=rules(
            rule("self <= 1", "more than one broker needs replication, which is not supported yet; write 0 or 1")
        ),
    )
    storage: Storage = part(Storage)
    resources: Resources = part(Resources)
    config: Config = part(Config)
    service: Service = part(Service)
    tls: Tls | None = Field(None, description="Serve clients over TLS.")
    scheduling: Scheduling = part(Scheduling)
    pdb: Switch = part(
        Switch,
        description="A PodDisruptionBudget. With one broker it blocks drains of its node while it is on.",
    )
    network_policy: NetworkPolicy = part(NetworkPolicy)
    monitoring: Monitoring = part(Monitoring)
    topology: Topology = part(Topology)
    pod_labels: Labels = Field(default_factory=dict)
    pod_annotations: Labels = Field(default_factory=dict)
    termination_grace_period_seconds: int = Field(
        60,
        ge=10,
        le=86_400,
        description="How long a stop may take before the broker is killed. Must exceed drainSeconds.",
    )
    paused: bool = Field(False, description="Stop reconciling this Cluster and its objects, except deletion.")
