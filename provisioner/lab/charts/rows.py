"""The values of the charts: one table, from which values.yaml and values.schema.json are written.

What the manifests say is the default there too: `defaults` reads it from the tree.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

import click

from provisioner.lab.charts.tree import Document, Source
from provisioner.options import AwsFeatureGates, FeatureGates, TimeLimits
from provisioner.options import command as provisioner

# --- settings of the provisioner

ELSEWHERE: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("metrics-port", "health-probe-port", "report-port", "why-port"),
        "Services, NetworkPolicies and probes name the ports",
    ),
    **dict.fromkeys(("memory-limit", "cpu-requests"), "provisioner.resources"),
    **dict.fromkeys(
        ("leader-election-name", "leader-election-namespace", "disable-leader-election"),
        "the Lease is an object of the chart, and roles name it",
    ),
    **dict.fromkeys(
        ("kubeconfig", "bind-address", "system-namespace", "report-address", "report-cert-dir"), "follows from the Pod"
    ),
    "provider": "provider",
    "translate-provisioners": "conversion.enabled",
    "vpa-predictions": "vpaPredictions.enabled",
    "log-level": "logLevel",
    "log-output-paths": "logOutputPaths",
}
"""Flags of the provisioner that are no key of `settings`, and what there is instead."""

_SPELLED: Final = {
    "cluster-ca-bundle": "clusterCABundle",
    "isolated-vpc": "isolatedVPC",
    "reserved-enis": "reservedENIs",
    "ignore-dra-requests": "ignoreDRARequests",
}
"""Keys that Karpenter's chart does not write as the flag is written."""

_DURATION: Final = r"^(0|([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+)$"
_GATES: Final[Mapping[str, type[FeatureGates] | type[AwsFeatureGates]]] = {
    "feature-gates": FeatureGates,
    "aws-feature-gates": AwsFeatureGates,
}


def camel(name: str) -> str:
    """A flag or attribute as a key of values."""
    head, *rest = re.split("[-_]", name)
    return head + "".join(word.capitalize() for word in rest)


def _gate_key(name: str) -> str:
    """A feature gate as a key of values, as Karpenter's chart spells it."""
    short = "DRA"
    return short.lower() + name.removeprefix(short) if name.startswith(short) else name[0].lower() + name[1:]


@dataclass(frozen=True)
class ChartSetting:
    """One flag of the provisioner as a key of `settings`.

    Attributes:
        key: below `settings`.
        variable: the environment variable that says it.
        kind: of the flag's values, as its help names them.
        doc: what it means.
        default: as text.
        gates: of a list of feature gates, the name of each by its key.
    """

    key: str
    variable: str
    kind: str
    doc: str
    default: str
    gates: Mapping[str, str]

    def rendered(self, path: str) -> str:
        """The pipeline of a template that makes the variable's text of the value."""
        if self.gates:
            return f'include "dovetail.gates" (dict "given" {path} "names" (dict {" ".join(f"{_q(key)} {_q(name)}" for key, name in self.gates.items())}))'
        match self.kind:
            case "YAML":
                return f"{path} | toJson"
            case "LIST":
                return f'include "dovetail.pairs" {path}'
            case "NUMBER" if "." not in self.default:
                return f"{path} | int64"
        return path

    @property
    def schema(self) -> Document:
        """Of the value, in JSON Schema."""
        if self.gates:
            return _object({key: {"type": ["boolean", "null"]} for key in self.gates})
        if self.kind == "LIST":
            return _object({one.name: {"type": "string", "pattern": _DURATION} for one in fields(TimeLimits)})
        found: dict[str, Document] = {
            "true|false": {"type": "boolean"},
            "DURATION": {"type": "string", "pattern": _DURATION},
            "USD": {"type": "number", "minimum": 0},
            "SHARE": {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
            "YAML": {"type": "object"},
            "NUMBER": {"type": ["integer", "string"], "pattern": "^[0-9]+$", "minimum": 0},
            "URL": {"type": "string", "pattern": "^(https?://.+)?$"},
            "BASE64": {"type": "string", "pattern": "^[A-Za-z0-9+/=]*$"},
        }
        if self.kind == "NUMBER" and "." in self.default:
            return {"type": "number", "minimum": 0}
        if self.kind not in found and "|" in self.kind:
            return {"enum": self.kind.split("|")}
        return found.get(self.kind, {"type": "string"})


def _q(text: str) -> str:
    return f'"{text}"'


def _or_null(schema: Document) -> Document:
    """Likewise, or as if it were not given."""
    if "enum" in schema:
        return {**schema, "enum": [*schema["enum"], None]}
    types = schema["type"]
    return {**schema, "type": [*([types] if isinstance(types, str) else types), "null"]}


def _object(properties: Mapping[str, Document]) -> Document:
    return {"type": "object", "additionalProperties": False, "properties": dict(properties)}


def _settings() -> Iterable[ChartSetting]:
    for option in provisioner().params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        flag = option.opts[0].removeprefix("--")
        if flag in ELSEWHERE:
            continue
        gates = {_gate_key(name): name for name in _GATES[flag].known()} if flag in _GATES else {}
        shown = str(option.show_default)
        yield ChartSetting(
            _SPELLED.get(flag, camel(flag)),
            str(option.envvar),
            option.type.name,
            str(option.help),
            "" if shown == "none" else shown,
            gates,
        )


SETTINGS: Final = tuple(_settings())

# --- all values


@dataclass(frozen=True)
class Row:
    """One value.

    Attributes:
        path: keys, with dots.
        default: as values.yaml has it.
        schema: in JSON Schema.
        doc: a comment above it.
    """

    path: str
    default: Any
    schema: Document
    doc: str = ""


TEXT: Final[Document] = {"type": "string"}
SWITCH: Final[Document] = {"type": "boolean"}
TEXTS: Final[Document] = {"type": "array", "items": {"type": "string"}}
MAP: Final[Document] = {"type": "object"}
WORDS: Final[Document] = {"type": "object", "additionalProperties": {"type": "string"}}
OBJECTS: Final[Document] = {"type": "array", "items": {"type": "object"}}
COUNT: Final[Document] = {"type": "integer", "minimum": 0}
SHARE: Final[Document] = {"type": ["integer", "string"], "pattern": "^[0-9]+%?$"}
DIGEST: Final[Document] = {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}


def table(sources: Iterable[Source]) -> tuple[Row, ...]:
    """Every value of the chart `dovetail`, in the order of values.yaml.

    Args:
        sources: the tree, whose Deployments say the defaults.
    """
    deployments = {one.key.name: one.document for one in sources if one.key.kind == "Deployment"}
    spec = deployments["dovetail-provisioner"]["spec"]
    pod = spec["template"]["spec"]
    kube_scheduler = _containers(deployments)["kube-scheduler"]["image"]
    repository, _, tag = kube_scheduler.rpartition(":")
    return (
        Row("provider", "aws", {"enum": ["aws", "kwok"]}, "Cloud provider: aws for EC2 instances, kwok for simulated nodes."),
        Row("image.repository", "dovetail", TEXT, "Image of all three programs: where you pushed it."),
        Row("image.tag", "", TEXT, "If empty, the appVersion of the chart."),
        Row("image.digest", "", DIGEST, "Digest such as sha256:...; with it, the tag is only for people."),
        Row("imagePullPolicy", "", {"enum": ["", "Always", "IfNotPresent", "Never"]}, "If empty, the default of Kubernetes."),
        Row("imagePullSecrets", [], OBJECTS),
        Row("additionalLabels", {}, WORDS, "Labels of every object."),
        Row("additionalAnnotations", {}, WORDS, "Annotations of every object."),
        Row("serviceAccount.create", True, SWITCH, "ServiceAccount of the provisioner, which calls AWS. If false, it must exist."),
        Row("serviceAccount.name", "", TEXT, "If empty, dovetail-provisioner."),
        Row("serviceAccount.annotations", {}, WORDS, "IRSA: eks.amazonaws.com/role-arn. With EKS Pod Identity, associate the role instead."),
        Row("additionalClusterRoleRules", [], OBJECTS, "Rules that the ClusterRole of the provisioner has in addition."),
        Row("monitoringNamespace", "monitoring", TEXT, "Namespace of Prometheus, which NetworkPolicies let read metrics."),
        Row("service.annotations", {}, WORDS, "Annotations of the Services."),
        # pods
        Row("revisionHistoryLimit", spec["revisionHistoryLimit"], COUNT, "Of all Deployments, as all values until the blocks of single programs."),
        Row("strategy", spec["strategy"], MAP),
        Row("podLabels", {}, WORDS),
        Row("podAnnotations", {}, WORDS),
        Row("podDisruptionBudget.maxUnavailable", 1, SHARE),
        Row("podSecurityContext", pod["securityContext"], MAP),
        Row("containerSecurityContext", {}, MAP, "Fields that the security context of every container has in addition, such as seLinuxOptions."),
        Row("priorityClassName", pod["priorityClassName"], TEXT),
        Row("dnsPolicy", "", {"enum": ["", "ClusterFirst", "Default"]}, "If empty, ClusterFirst."),
        Row("dnsConfig", {}, MAP),
        Row("nodeSelector", pod["nodeSelector"], WORDS),
        Row("affinity", _without_selectors(pod["affinity"]), MAP, "Without a labelSelector: for the pods of the same program."),
        Row("topologySpreadConstraints", _without_selectors(pod["topologySpreadConstraints"]), OBJECTS, "Likewise."),
        Row("tolerations", pod["tolerations"], OBJECTS),
        Row("logLevel", None, {"enum": [None, "debug", "info", "error"]}, "debug, info or error; if null, info."),
        Row("logOutputPaths", [], TEXTS, "Destinations of the provisioner's logs; if empty, stdout."),
        *_program("provisioner", deployments),
        Row("provisioner.initContainers", [], OBJECTS),
        Row("provisioner.extraContainers", [], OBJECTS, "Sidecars."),
        Row("provisioner.extraVolumes", [], OBJECTS),
        Row("provisioner.extraVolumeMounts", [], OBJECTS),
        Row("webhook.enabled", True, SWITCH, "Whether pods are stamped, and objects validated. If false, see admissionPolicy (component without-webhook)."),
        *_program("webhook", deployments),
        Row("webhook.serviceAccount.annotations", {}, WORDS, "IRSA, for --image-ecr-accounts."),
        Row("webhook.defaults", {}, WORDS, "Stamped on pods that say nothing, such as arch: amd64. If empty, the ConfigMap is left as it is."),
        Row("webhook.readOnly", False, SWITCH, "You create its certificate and set the caBundle (component webhook-read-only)."),
        Row("webhook.certManager.enabled", False, SWITCH, "cert-manager does so (component cert-manager)."),
        Row("webhook.onDemandShares.enabled", False, SWITCH, "Apply dovetail.dev/on-demand; the webhook may list all pods (component on-demand-shares)."),
        Row("webhook.imageArchitectures.enabled", False, SWITCH, "Apply dovetail.dev/image-arch (component image-architectures)."),
        Row("webhook.imageArchitectures.registries", _registries(sources), TEXTS, "Registries that are asked what images were built for."),
        Row("admissionPolicy.enabled", False, SWITCH, "The API server stamps pods, from Kubernetes 1.36 on (component admission-policy)."),
        Row("surge.enabled", False, SWITCH, "The provisioner may patch Deployments, for dovetail.dev/surge (component surge)."),
        Row("vpaPredictions.enabled", False, SWITCH, "Pods that move are sized by VerticalPodAutoscalers (component vpa-predictions)."),
        Row("conversion.enabled", False, SWITCH, "Old API versions; install dovetail-crd with conversion.enabled first (component conversion)."),
        Row("scheduler.enabled", False, SWITCH, "A second kube-scheduler with the extender, for pods whose schedulerName is dovetail-scheduler."),
        Row("scheduler.image.repository", repository, TEXT),
        Row("scheduler.image.tag", tag, TEXT, "Version of the API server; never a newer one."),
        Row("scheduler.image.digest", "", DIGEST),
        Row("scheduler.before135", False, SWITCH, "For a tag below v1.35 (component scheduler-before-1.35)."),
        *_program("scheduler", deployments),
        Row("scheduler.serviceAccount.annotations", {}, WORDS),
        *_program("extender", deployments),
        Row("settings", {}, _object({one.key: _or_null(one.schema) for one in SETTINGS}), "Settings of the provisioner, with their defaults."),
        Row("serviceMonitor.enabled", False, SWITCH, "ServiceMonitors; needs the Prometheus Operator."),
        Row("serviceMonitor.additionalLabels", {}, WORDS),
        Row("serviceMonitor.relabelings", [], OBJECTS),
        Row("serviceMonitor.metricRelabelings", [], OBJECTS),
        Row("serviceMonitor.endpointConfig", {}, MAP, "More fields of each endpoint."),
        Row("serviceMonitor.sampleLimit", None, {"type": ["integer", "null"], "minimum": 0}),
        Row("prometheusRule.enabled", False, SWITCH, "Alerts; needs the Prometheus Operator."),
        Row("prometheusRule.additionalLabels", {}, WORDS),
        Row("dashboards.enabled", False, SWITCH, "Dashboards, as ConfigMaps that Grafana's sidecar finds by their label."),
        Row("dashboards.labels", {"grafana_dashboard": "1"}, WORDS),
        Row("extraObjects", [], {"type": "array", "items": {"type": ["object", "string"]}}, "More objects, as mappings or texts, with templates."),
    )  # fmt: skip


def _containers(deployments: Mapping[str, Document]) -> dict[str, Document]:
    return {
        one["name"]: one for found in deployments.values() for one in found["spec"]["template"]["spec"]["containers"]
    }


def _program(block: str, deployments: Mapping[str, Document]) -> Iterable[Row]:
    """The values that every program has."""
    container = _containers(deployments)["kube-scheduler" if block == "scheduler" else block]
    if block != "extender":
        yield Row(
            f"{block}.replicas", deployments[f"dovetail-{block}"]["spec"]["replicas"], {"type": "integer", "minimum": 0}
        )
    yield Row(f"{block}.resources", container["resources"], MAP)
    yield Row(f"{block}.env", [], OBJECTS)
    yield Row(f"{block}.envFrom", [], OBJECTS)
    yield Row(
        f"{block}.extraArgs",
        [],
        TEXTS,
        f"More flags; the last one of a name wins. `dovetail {block} --help` lists them."
        if block != "scheduler"
        else "",
    )


def _registries(sources: Iterable[Source]) -> list[str]:
    (argument,) = (text for one in sources for _, text in one.added if text.startswith("--image-registries="))
    return argument.partition("=")[2].split(",")


def _without_selectors(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_selectors(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_selectors(one) for key, one in value.items() if key != "labelSelector"}
    return value
