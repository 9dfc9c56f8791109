"""The Cluster kind: a broker on Kubernetes.

Only supported settings have a field; the API server refuses unknown fields.
"""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from penstock_operator.api.backup import RestoreFrom
from penstock_operator.api.broker_config import OWNED, SECRET, BrokerConfig
from penstock_operator.api.fields import (
    TEXT_LENGTH_MAX,
    Labels,
    Model,
    ObjectName,
    Passed,
    Quantity,
    SecretKey,
    SecretName,
    SecretValue,
    part,
    rule,
    rules,
)
from penstock_operator.api.override import Override, is_own_path, volume_problems

DnsName = Annotated[str, Field(max_length=253, pattern=r"^(\*\.)?[a-zA-Z0-9]([-a-zA-Z0-9.]*[a-zA-Z0-9])?$")]
ListOfPassed = Annotated[list[Passed], Field(max_length=64)]


def refusal(key: str) -> str:
    """Return why a setting of the operator's own is refused."""
    return f"{to_camel(key)} is set by the operator: {OWNED[key]}"


class Retain(Model):
    """The fate of the volume."""

    when_deleted: Literal["Retain", "Delete"] = Field(
        "Retain", description="Whether deleting the Cluster keeps the volume. Delete also deletes all messages."
    )


class Storage(Model):
    """The volume for the messages."""

    model_config = ConfigDict(
        json_schema_extra=rules(
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


class Config(BrokerConfig):
    """Settings of the broker, with its defaults. A change restarts the broker once, unless a field says otherwise."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            *(rule(f"!has(self.{to_camel(key)})", refusal(key)) for key in OWNED),
            rule(
                "!has(self.authBackends) || self.authBackends.contains('local')",
                "the operator logs in as a user of the broker; keep 'local' in authBackends",
            ),
            rule(
                "!has(self.authBackends) || !self.authBackends.contains('jwt')"
                " || (has(self.jwtAudience) && (has(self.jwtIssuer) || has(self.jwtJwksUrl)))",
                "authBackends has jwt; write jwtAudience, and jwtIssuer or jwtJwksUrl",
            ),
            rule(
                "!has(self.authBackends) || !self.authBackends.contains('http')"
                " || (has(self.httpAuthUserUrl) && has(self.httpAuthVhostUrl) && has(self.httpAuthResourceUrl))",
                "authBackends has http; write httpAuthUserUrl, httpAuthVhostUrl and httpAuthResourceUrl",
            ),
            rule(
                "!has(self.segmentBytesMin) || !has(self.segmentBytesMax)"
                " || self.segmentBytesMin <= self.segmentBytesMax",
                "segmentBytesMin is larger than segmentBytesMax; write a smaller one",
            ),
        )
    )

    @model_validator(mode="after")
    def _check_owned(self) -> Self:
        for key in OWNED:
            if getattr(self, key) is not None:
                raise ValueError(refusal(key))
        if self.auth_backends is not None and "local" not in self.auth_backends:
            raise ValueError("the operator logs in as a user of the broker; keep 'local' in authBackends")
        return self

    def plain(self) -> dict[str, str | int | float | bool]:
        """Return the settings that are written into the broker's file, by its keys."""
        return self.model_dump(exclude_none=True, exclude=set(SECRET))

    def secret(self) -> dict[str, SecretKey]:
        """Return the settings that are in Secrets, by the broker's keys."""
        held: dict[str, SecretValue | None] = {key: getattr(self, key) for key in sorted(SECRET)}
        return {key: value.secret_key_ref for key, value in held.items() if value is not None}


class Service(Model):
    """The Service that clients use."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    annotations: Labels = Field(default_factory=dict)
    load_balancer_class: Annotated[str, Field(max_length=317)] | None = Field(
        None, description="The load balancer that a Service of the type LoadBalancer gets."
    )
    amqp: bool = Field(True, description="Whether the broker serves AMQP 0-9-1: on port 5672, or 5671 with TLS.")


class Scheduling(Model):
    """The nodes that the broker may run on."""

    node_selector: Labels = Field(default_factory=dict)
    tolerations: ListOfPassed = Field(default_factory=list)
    affinity: Passed | None = None
    priority_class_name: ObjectName | None = None
    topology_spread_constraints: ListOfPassed = Field(
        default_factory=list, description="How the pods of this Cluster spread over nodes and zones."
    )


class IssuerRef(Model):
    """An issuer of cert-manager."""

    name: ObjectName
    kind: Literal["Issuer", "ClusterIssuer"] = "Issuer"


class Issued(Model):
    """A certificate that cert-manager creates and stores in the Secret."""

    issuer_ref: IssuerRef
    dns_names: Annotated[list[DnsName], Field(max_length=64)] = Field(
        default_factory=list, description="More names in the certificate, for example of a load balancer."
    )


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


class ExtraVolume(Model):
    """A volume of the broker's container beside its own."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
    mount_path: Annotated[str, Field(max_length=255, pattern="^/[^:]+$")] = Field(
        description="The directory in the container; none of the broker's own."
    )
    read_only: bool = True
    source: Passed = Field(
        description="One of configMap, csi, downwardAPI, emptyDir, ephemeral, persistentVolumeClaim, projected, secret."
    )

    @model_validator(mode="after")
    def _check_source(self) -> Self:
        problems = volume_problems({"name": self.name, **self.source}, f"spec.extraVolumes[{self.name}]")
        if is_own_path(self.mount_path):
            problems.append(f"mountPath '{self.mount_path}' would hide the broker's own files; choose another")
        if problems:
            raise ValueError(problems[0])
        return self


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
    """The alerts that docs/failures.md explains."""

    enabled: bool = False
    labels: Labels = Field(default_factory=dict)
    runbook_url: Annotated[str, Field(max_length=TEXT_LENGTH_MAX, pattern=r"^(https?://[^\s#]+)?$")] = Field(
        "", description="Where you publish docs/failures.md. Each alert then has a runbook_url in it."
    )


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
    administrators_from: AllowedNamespaces = part(
        AllowedNamespaces,
        description="The namespaces whose Users may have tags above management, and take over users that have them.",
    )


class ClusterSpec(Model):
    """One broker, its volume and its Services."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            rule(
                "!has(self.config.drainSeconds)"
                " || self.config.drainSeconds < double(self.terminationGracePeriodSeconds)",
                "the broker would be killed while it drains; write a terminationGracePeriodSeconds above"
                " config.drainSeconds",
            ),
            rule(
                "!has(self.restoreFrom) || (has(oldSelf.restoreFrom) && self.restoreFrom == oldSelf.restoreFrom)",
                "restoreFrom counts only when a Cluster is made; leave it out, or make another Cluster with it",
            ),
            rule(
                "!has(self.config.tlsNamesDir) || has(self.tls)",
                "config.tlsNamesDir needs a certificate; write spec.tls, too",
            ),
        )
    )

    image: Annotated[str, Field(min_length=1, max_length=512, pattern=r"^[^\s]+$")] = Field(
        description="The broker's image, with its tag or digest: NAME:TAG or NAME@sha256:DIGEST."
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
    restore_from: RestoreFrom | None = Field(
        None,
        description="The backup that a new Cluster begins with. It cannot be added or changed later, and does nothing"
        " on a volume that has data.",
    )
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
    extra_volumes: Annotated[list[ExtraVolume], Field(max_length=16)] = Field(
        default_factory=list, description="Volumes beside the broker's own, for example for archives."
    )
    override: Override = part(Override)
    pod_labels: Labels = Field(default_factory=dict)
    pod_annotations: Labels = Field(default_factory=dict)
    termination_grace_period_seconds: int = Field(
        60,
        ge=10,
        le=86_400,
        description="How long a stop may take before the broker is killed. Must exceed drainSeconds.",
    )
    paused: bool = Field(False, description="Stop reconciling this Cluster and its objects, except deletion.")
