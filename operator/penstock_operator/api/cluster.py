"""The Cluster kind: a broker on Kubernetes.

Only settings that this version supports have a field: the API server refuses unknown fields, never ignores them.
"""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from penstock_operator.api.fields import Labels, Model, ObjectName, Passed, Quantity, part, rule, rules

ListOfPassed = Annotated[list[Passed], Field(max_length=64)]


class SecretName(Model):
    """A Secret in the Cluster's namespace."""

    name: ObjectName


class Retain(Model):
    """What becomes of the volume."""

    when_deleted: Literal["Retain", "Delete"] = Field(
        "Retain", description="When the Cluster is deleted. Delete: the messages are gone with it."
    )


class Storage(Model):
    """Where the messages are."""

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

    size: Quantity = Field("10Gi", description="Size of the volume. It can grow where the storage class allows it.")
    storage_class_name: ObjectName | None = Field(None, description="The cluster's default class when absent.")
    mode: Literal["pvc", "emptyDir"] = Field(
        "pvc", description="emptyDir: the messages are gone with the pod. For tests only."
    )
    retain: Retain = part(Retain)
    loss_policy: Literal["Auto", "Manual"] = Field(
        "Auto",
        description="When the broker began empty. Auto: what manifests describe is declared again at once. Manual: the"
        " Cluster is not ready and nothing is declared until somebody said that the loss was seen.",
    )


class Resources(Model):
    """Of the broker's container. Ask for as much memory as the limit says, and give no CPU limit."""

    requests: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"cpu": "500m", "memory": "512Mi"})
    limits: Annotated[dict[str, Quantity], Field(max_length=8)] = Field({"memory": "512Mi"})


class Config(Model):
    """The broker's settings, with its defaults. A change restarts the broker once, unless a field says otherwise."""

    log_level: Literal["debug", "info", "warning", "error"] | None = Field(
        None, description="The least level to log. Counts without a restart."
    )
    message_bytes_max: int | None = Field(None, ge=1024, le=512 * 1024**2, description="The largest message.")
    segment_bytes_min: int | None = Field(None, ge=64 * 1024, le=1024**3, description="Size of a log's first segment.")
    segment_bytes_max: int | None = Field(
        None, ge=64 * 1024, le=1024**3, description="Segments double up to this size."
    )
    segment_idle_seconds: int | None = Field(
        None, ge=1, le=86_400, description="A segment nobody read for so long is unmapped."
    )
    disk_free_bytes_min: int | None = Field(
        None, ge=0, le=1024**5, description="Publishers are refused while less is free."
    )
    compaction_bytes_per_second: int | None = Field(
        None, ge=0, le=64 * 1024**3, description="How fast mostly dead segments are rewritten; 0 is off."
    )
    producer_memory_days: int | None = Field(
        None, ge=0, le=3_650, description="Names of producers unused for so long are forgotten; 0 is never."
    )
    io_threads: int | None = Field(None, ge=0, le=256, description="Threads that serve connections; 0 lets it choose.")
    drain_seconds: int | None = Field(
        None,
        ge=0,
        le=3_600,
        description="How long a stop waits for clients to end their streams. Counts without a restart.",
    )


class Service(Model):
    """The Service that clients use."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Labels = Field(default_factory=dict)


class Scheduling(Model):
    """On which nodes the broker may run."""

    node_selector: Labels = Field(default_factory=dict)
    tolerations: ListOfPassed = Field(default_factory=list)
    affinity: Passed | None = None
    priority_class_name: ObjectName | None = None


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: ObjectName
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"


class Issued(Model):
    """Lets cert-manager make the certificate and put it into the Secret."""

    issuer_ref: IssuerRef


class ClientCertificates(Model):
    """Clients show certificates, the operator among them."""

    auth: Literal["optional", "required"] = Field("required", description="required: nobody gets in without.")
    authority_secret_name: ObjectName = Field(
        description="A Secret whose key `ca.crt` has the authorities that sign clients' certificates."
    )
    operator_secret_name: ObjectName = Field(
        description="A Secret of the type kubernetes.io/tls: what the operator shows."
    )
    user: Literal["none", "cn", "san_dns", "san_email", "san_uri"] = Field(
        "none", description="The name in a certificate that is a user's: whoever shows it needs no password."
    )


class Tls(Model):
    """Nothing listens in plaintext then, but for health and figures. A changed certificate counts without a restart."""

    secret_name: ObjectName = Field(
        description="A Secret of the type kubernetes.io/tls; its key `ca.crt` is what clients and the operator trust."
    )
    cert_manager: Issued | None = None
    version_min: Literal["1.2", "1.3"] = Field("1.2", description="The lowest version of TLS.")
    client_certificates: ClientCertificates | None = Field(None, description="Ask clients for certificates as well.")


class Switch(Model):
    """On or off."""

    enabled: bool = False


class NetworkPolicy(Model):
    """Who may connect."""

    enabled: bool = False
    allowed_clients: ListOfPassed = Field(
        default_factory=list,
        description="NetworkPolicyPeers that may publish and consume; everybody in the namespace when empty.",
    )


class ServiceMonitor(Model):
    """For the Prometheus operator. Where its CRDs are missing, a condition says so."""

    enabled: bool = False
    interval: Annotated[str, Field(max_length=16, pattern="^[0-9]+(ms|s|m|h)$")] = "15s"
    labels: Labels = Field(default_factory=dict)


class PrometheusRule(Model):
    """The alerts that docs/kubernetes.md lists."""

    enabled: bool = False
    labels: Labels = Field(default_factory=dict)


class Monitoring(Model):
    """Figures and alerts."""

    service_monitor: ServiceMonitor = part(ServiceMonitor)
    prometheus_rule: PrometheusRule = part(PrometheusRule)


class AllowedNamespaces(Model):
    """Whose queues, users and so on this Cluster takes."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "(self.from == 'Selector') == has(self.matchLabels)",
                "matchLabels belongs to from: Selector; write both or neither",
            )
        )
    )

    from_: Literal["Same", "All", "Selector"] = Field(
        "Same", alias="from", description="Same: those of the Cluster's own namespace alone."
    )
    match_labels: Labels | None = Field(None, description="Labels that a namespace must have.")


class Topology(Model):
    """Queues, users and so on that name this Cluster."""

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
            rule("self <= 1", "more than one broker comes with replication, which is not there yet; write 0 or 1")
        ),
    )
    storage: Storage = part(Storage)
    resources: Resources = part(Resources)
    config: Config = part(Config)
    service: Service = part(Service)
    tls: Tls | None = Field(None, description="Serve clients by TLS.")
    scheduling: Scheduling = part(Scheduling)
    pdb: Switch = part(
        Switch,
        description="A PodDisruptionBudget. With one broker it holds up every drain of its node until it is off.",
    )
    network_policy: NetworkPolicy = part(NetworkPolicy)
    monitoring: Monitoring = part(Monitoring)
    topology: Topology = part(Topology)
    pod_labels: Labels = Field(default_factory=dict)
    pod_annotations: Labels = Field(default_factory=dict)
    termination_grace_period_seconds: int = Field(
        60, ge=10, le=86_400, description="How long a stop may take before the broker is killed; above drainSeconds."
    )
    paused: bool = Field(False, description="The operator keeps its hands off, but for deletion.")
