"""Each object of the tree as a template: which of its fields are values."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

from provisioner.apis.names import OWN_NAMESPACE
from provisioner.cli.documents import plain_yaml
from provisioner.lab.charts.rows import SETTINGS, ChartSetting
from provisioner.lab.charts.sheet import Sheet
from provisioner.lab.charts.tree import MONITORING, Document, Source

HEADER: Final = "{{- /* Generated from manifests/%s by `make manifests`; do not edit. */ -}}\n"

PROGRAMS: Final = {
    "provisioner": "provisioner",
    "webhook": "webhook",
    "extender": "extender",
    "kube-scheduler": "scheduler",
}
"""The block of values of each container."""


def template(source: Source) -> str:
    """One object, with the conditions under which it is there."""
    sheet, document = Sheet(), json.loads(json.dumps(source.document))
    _metadata(source, document["metadata"], sheet)
    for name, (condition, value) in source.replaced.items():
        _either(document, name, condition, value, sheet)
    if (change := _KINDS.get(document["kind"])) is not None:
        change(source, document, sheet)
    _accounts(document, sheet)
    text = f"---\n{sheet.text(document)}"
    for condition in reversed(source.conditions):
        text = f"{{{{- if {condition} }}}}\n{text}{{{{- end }}}}\n"
    return text


def _with(path: str, key: str) -> str:
    """Lines of a field that is there where its value is."""
    return f"{{{{- with .Values.{path} }}}}\n{key}:\n  {{{{- toYaml . | nindent «2» }}}}\n{{{{- end }}}}"


def _more(path: str) -> str:
    """Lines that add a value to the list or mapping that they are in."""
    return f"{{{{- with .Values.{path} }}}}\n{{{{- toYaml . | nindent «0» }}}}\n{{{{- end }}}}"


def _metadata(source: Source, metadata: Document, sheet: Sheet) -> None:
    labels = metadata.setdefault("labels", {})
    labels[sheet.block('{{- include "dovetail.labels" . | nindent «0» }}')] = None
    values = _annotation_values(source)
    if not source.annotations and not values:
        metadata[sheet.block(_with("additionalAnnotations", "annotations"))] = None
        return
    lines = ["{{- $annotations := deepCopy .Values.additionalAnnotations }}"]
    for condition, annotations in source.annotations:
        for key, value in annotations.items():
            text = json.dumps(value.replace(OWN_NAMESPACE, "%s", 1))
            change = f'set $annotations "{key}" (printf {text} $.Release.Namespace)'
            lines.append(f"{{{{- if {condition} }}}}{{{{- $_ := {change} }}}}{{{{- end }}}}")
    lines += [f"{{{{- $annotations = mergeOverwrite $annotations .Values.{path} }}}}" for path in values]
    lines.append("{{- with $annotations }}\nannotations:\n  {{- toYaml . | nindent «2» }}\n{{- end }}")
    metadata[sheet.block("\n".join(lines))] = None


_ACCOUNT_VALUES: Final = {
    "dovetail-provisioner": "serviceAccount.annotations",
    "dovetail-webhook": "webhook.serviceAccount.annotations",
    "dovetail-scheduler": "scheduler.serviceAccount.annotations",
}


def _annotation_values(source: Source) -> list[str]:
    """Values that hold annotations of this object."""
    if source.key.kind == "ServiceAccount":
        return [_ACCOUNT_VALUES[source.key.name]]
    return ["service.annotations"] if source.key.kind == "Service" else []


def _either(document: Document, name: str, condition: str, value: Any, sheet: Sheet) -> None:
    """A field that is another one under a condition."""
    before = document.pop(name)
    texts = [plain_yaml({name: one}).rstrip() for one in (value, before)]
    document[sheet.block(f"{{{{- if {condition} }}}}\n{texts[0]}\n{{{{- else }}}}\n{texts[1]}\n{{{{- end }}}}")] = None


_ACCOUNT: Final = "dovetail-provisioner"


def _accounts(value: Any, sheet: Sheet) -> None:
    """The name of the provisioner's ServiceAccount is a value, wherever it is named."""
    if isinstance(value, list):
        for one in value:
            _accounts(one, sheet)
    elif isinstance(value, dict):
        for holder, key in _account_names(value):
            if holder.get(key) == _ACCOUNT:
                holder[key] = sheet.inline('{{ include "dovetail.account" $ }}')
        for one in value.values():
            _accounts(one, sheet)


def _account_names(value: Document) -> Iterator[tuple[Document, str]]:
    """Where a mapping may name a ServiceAccount: as an object, a subject, that of a FlowSchema, and that of a Pod."""
    yield value, "serviceAccountName"
    if isinstance(account := value.get("serviceAccount"), dict):
        yield account, "name"
    if value.get("kind") == "ServiceAccount":
        yield value, "name"
        yield value.get("metadata", {}), "name"


def _deployment(source: Source, document: Document, sheet: Sheet) -> None:
    spec = document["spec"]
    block = document["metadata"]["labels"]["app.kubernetes.io/component"]
    labels = dict(spec["selector"]["matchLabels"])
    spec["replicas"] = sheet.inline(f"{{{{ .Values.{block}.replicas }}}}")
    spec["revisionHistoryLimit"] = sheet.inline("{{ .Values.revisionHistoryLimit }}")
    spec["strategy"] = {sheet.block("{{- toYaml .Values.strategy | nindent «0» }}"): None}
    template_ = spec["template"]
    template_["metadata"]["labels"][sheet.block(_more("podLabels"))] = None
    template_["metadata"][sheet.block(_with("podAnnotations", "annotations"))] = None
    pod = template_["spec"]
    pod["priorityClassName"] = sheet.inline("{{ .Values.priorityClassName | quote }}")
    pod["securityContext"] = {sheet.block("{{- toYaml .Values.podSecurityContext | nindent «0» }}"): None}
    selector = " ".join(json.dumps(word) for pair in labels.items() for word in pair)
    for key in ("affinity", "topologySpreadConstraints", "nodeSelector", "tolerations"):
        del pod[key]
    for key in ("affinity", "topologySpreadConstraints"):
        found = f'include "dovetail.{key}" (dict "{key}" . "labels" (dict {selector}))'
        lines = f"{{{{- with .Values.{key} }}}}\n{key}:\n  {{{{- {found} | nindent «2» }}}}\n{{{{- end }}}}"
        pod[sheet.block(lines)] = None
    for key in ("nodeSelector", "tolerations", "imagePullSecrets", "dnsConfig"):
        pod[sheet.block(_with(key, key))] = None
    pod[sheet.block("{{- with .Values.dnsPolicy }}\ndnsPolicy: {{ . }}\n{{- end }}")] = None
    if block == "provisioner":
        pod[sheet.block(_with("provisioner.initContainers", "initContainers"))] = None
        pod["volumes"].append(sheet.block(_more("provisioner.extraVolumes")))
    for container in pod["containers"]:
        _container(container, sheet)
    first = pod["containers"][0]
    for condition, argument in source.added:
        first["args"].append(sheet.only_if(condition, _argument(argument)))
    for place, condition in source.removed.items():
        first["command"][place] = sheet.only_if(f"not ({condition})", first["command"][place])
    for container in pod["containers"]:
        name = PROGRAMS[container["name"]]
        container["command" if name == "scheduler" else "args"].append(sheet.block(_more(f"{name}.extraArgs")))
    if block == "provisioner":
        pod["containers"].append(sheet.block(_more("provisioner.extraContainers")))


def _argument(argument: str) -> str:
    """One that a component adds; the registries are a value."""
    flag, equals, _ = argument.partition("=")
    if flag == "--image-registries":
        return f'{flag}{equals}{{{{ join "," .Values.webhook.imageArchitectures.registries }}}}'
    return argument


def _container(container: Document, sheet: Sheet) -> None:
    block = PROGRAMS[container["name"]]
    image = "dovetail.schedulerImage" if block == "scheduler" else "dovetail.image"
    container["image"] = sheet.inline(f'{{{{ include "{image}" . | quote }}}}')
    container[sheet.block("{{- with .Values.imagePullPolicy }}\nimagePullPolicy: {{ . }}\n{{- end }}")] = None
    environment = container["env"]
    if block != "scheduler":
        environment.append(sheet.block(_variable("logLevel", "LOG_LEVEL", ". | quote")))
    if block == "provisioner":
        environment.append(sheet.block(_variable("logOutputPaths", "LOG_OUTPUT_PATHS", 'join "," . | quote')))
        for setting in SETTINGS:
            environment.append(sheet.block(_setting(setting)))
    environment.append(sheet.block(_more(f"{block}.env")))
    container[sheet.block(_with(f"{block}.envFrom", "envFrom"))] = None
    container["resources"] = {sheet.block(f"{{{{- toYaml .Values.{block}.resources | nindent «0» }}}}"): None}
    container["securityContext"][sheet.block(_more("containerSecurityContext"))] = None
    if block == "provisioner":
        container["volumeMounts"].append(sheet.block(_more("provisioner.extraVolumeMounts")))


def _variable(path: str, variable: str, value: str) -> str:
    return f"{{{{- with .Values.{path} }}}}\n- name: {variable}\n  value: {{{{ {value} }}}}\n{{{{- end }}}}"


def _setting(setting: ChartSetting) -> str:
    """The variable of one setting, there where the value is; 0 and false are values."""
    path = f".Values.settings.{setting.key}"
    return f'{{{{- if not (kindIs "invalid" {path}) }}}}\n- name: {setting.variable}\n  value: {{{{ {setting.rendered(path)} | quote }}}}\n{{{{- end }}}}'


def _budget(_: Source, document: Document, sheet: Sheet) -> None:
    document["spec"]["maxUnavailable"] = sheet.inline("{{ .Values.podDisruptionBudget.maxUnavailable }}")


def _map(source: Source, document: Document, sheet: Sheet) -> None:
    if source.key.name == "dovetail-defaults":
        document[sheet.block(_with("webhook.defaults", "data"))] = None
    if source.path.parts[0] == MONITORING:
        labels = document["metadata"]["labels"]
        del labels["grafana_dashboard"]
        labels[sheet.block(_more("dashboards.labels"))] = None


def _rule(_: Source, document: Document, sheet: Sheet) -> None:
    document["metadata"]["labels"][sheet.block(_more("prometheusRule.additionalLabels"))] = None


def _monitor(_: Source, document: Document, sheet: Sheet) -> None:
    document["metadata"]["labels"][sheet.block(_more("serviceMonitor.additionalLabels"))] = None
    spec, limit = document["spec"], ".Values.serviceMonitor.sampleLimit"
    lines = f'{{{{- if not (kindIs "invalid" {limit}) }}}}\nsampleLimit: {{{{ {limit} }}}}\n{{{{- end }}}}'
    spec[sheet.block(lines)] = None
    for endpoint in spec.get("endpoints") or spec["podMetricsEndpoints"]:
        for key in ("relabelings", "metricRelabelings"):
            value = f"serviceMonitor.{key}"
            if key in endpoint:
                endpoint[key].append(sheet.block(_more(value)))
            else:
                endpoint[sheet.block(_with(value, key))] = None
        endpoint[sheet.block(_more("serviceMonitor.endpointConfig"))] = None


def _role(source: Source, document: Document, sheet: Sheet) -> None:
    if source.key.name == "dovetail-provisioner":
        document["rules"].append(sheet.block(_more("additionalClusterRoleRules")))


def _policy(_: Source, document: Document, sheet: Sheet) -> None:
    for rule in document["spec"].get("ingress", ()):
        for peer in rule.get("from", ()):
            labels = peer.get("namespaceSelector", {}).get("matchLabels", {})
            if labels.get("kubernetes.io/metadata.name") == "monitoring":
                labels["kubernetes.io/metadata.name"] = sheet.inline("{{ .Values.monitoringNamespace | quote }}")


_KINDS: Final[dict[str, Callable[[Source, Document, Sheet], None]]] = {
    "Deployment": _deployment,
    "PodDisruptionBudget": _budget,
    "ConfigMap": _map,
    "ClusterRole": _role,
    "NetworkPolicy": _policy,
    "PodMonitor": _monitor,
    "PrometheusRule": _rule,
    "ServiceMonitor": _monitor,
}
