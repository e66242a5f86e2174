"""What is known of a cluster that is to be taken over, frozen: from the API server, or from files that hold what it would answer. Pure."""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.core import ConfigMap, Lease, Node, PodDisruptionBudget, ServiceReference
from provisioner.apis.ec2 import EC2NodeClass
from provisioner.apis.karpenter import NodeClaim, NodePool
from provisioner.apis.meta import Object, ObjectMeta
from provisioner.apis.node_class_providers import PROVIDERS
from provisioner.apis.overlay import NodeOverlay
from provisioner.apis.pods import Pod
from provisioner.takeover.helm_release import HelmRelease

PROVISIONER: Final = "dovetail-provisioner"
"""The name of our Deployment."""
MOST_CONTAINERS: Final = 20


class ProgramKind(enum.StrEnum):
    """Which program a Deployment runs."""

    KARPENTER = "Karpenter"
    CLUSTER_AUTOSCALER = "Cluster Autoscaler"
    DOVETAIL = "Dovetail"


class _Variable(Object, frozen=True, kw_only=True):
    name: str = ""
    value: str = ""


class _ProgramContainer(Object, frozen=True, kw_only=True):
    name: str = ""
    image: str = ""
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[_Variable, ...] = ()


class _ProgramPodSpec(Object, frozen=True, kw_only=True):
    containers: tuple[_ProgramContainer, ...] = ()


class _ProgramTemplate(Object, frozen=True, kw_only=True):
    spec: _ProgramPodSpec = _ProgramPodSpec()


class _ProgramSpec(Object, frozen=True, kw_only=True):
    replicas: int = 1
    template: _ProgramTemplate = _ProgramTemplate()


class ProgramDeployment(Object, frozen=True, kw_only=True):
    """apps/v1 Deployment, with what its containers are told."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _ProgramSpec = _ProgramSpec()

    @property
    def namespace(self) -> str:
        return self.metadata.namespace or "default"

    @property
    def named(self) -> str:
        """For people."""
        return f"{self.namespace}/{self.metadata.name}"

    @property
    def replicas(self) -> int:
        return self.spec.replicas

    @property
    def controller(self) -> _ProgramContainer:
        """The container of the program itself."""
        containers = self.spec.template.spec.containers or (_ProgramContainer(),)
        return next((one for one in containers if one.name in ("controller", "provisioner")), containers[0])

    @property
    def flags(self) -> tuple[str, ...]:
        """What stands after the program's name."""
        given = (*self.controller.command[1:], *self.controller.args)
        return tuple(one for one in given if one.startswith("-"))

    @property
    def variables(self) -> dict[str, str]:
        """Those with a value that stands in the object; others are not known."""
        return {one.name: one.value for one in self.controller.env if one.value and "$(" not in one.value}

    @property
    def kind(self) -> ProgramKind | None:
        """Which of the programs it is; None for all others."""
        label = self.metadata.labels.get("app.kubernetes.io/name", "")
        images = [one.image.partition("@")[0] for one in self.spec.template.spec.containers[:MOST_CONTAINERS]]
        if self.metadata.name == PROVISIONER:
            return ProgramKind.DOVETAIL
        if self.metadata.name == "karpenter" or label == "karpenter" or any("karpenter/" in one for one in images):
            return ProgramKind.KARPENTER
        if "cluster-autoscaler" in label or any("cluster-autoscaler" in one for one in images):
            return ProgramKind.CLUSTER_AUTOSCALER
        return None


class _ClientConfig(Object, frozen=True, kw_only=True):
    service: ServiceReference | None = None


class _Webhook(Object, frozen=True, kw_only=True):
    name: str = ""
    client_config: _ClientConfig = _ClientConfig()


class WebhookSet(Object, frozen=True, kw_only=True):
    """A mutating or validating webhook configuration: whom it asks."""

    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    webhooks: tuple[_Webhook, ...] = ()

    @property
    def services(self) -> frozenset[str]:
        """As "namespace/name"."""
        found = (one.client_config.service for one in self.webhooks)
        return frozenset(f"{one.namespace}/{one.name}" for one in found if one is not None)


class _ConversionWebhook(Object, frozen=True, kw_only=True):
    client_config: _ClientConfig | None = None


class _Conversion(Object, frozen=True, kw_only=True):
    strategy: str = "None"
    webhook: _ConversionWebhook | None = None


class _DefinitionSpec(Object, frozen=True, kw_only=True):
    conversion: _Conversion | None = None


class FoundDefinition(Object, frozen=True, kw_only=True):
    """A CustomResourceDefinition: who keeps it, and who converts its objects."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _DefinitionSpec = _DefinitionSpec()

    @property
    def converter(self) -> str:
        """The Service that is asked, as "namespace/name"; "" for none."""
        conversion = self.spec.conversion
        if conversion is None or conversion.strategy != "Webhook" or conversion.webhook is None:
            return ""
        config = conversion.webhook.client_config
        service = config.service if config is not None else None
        return f"{service.namespace}/{service.name}" if service is not None else ""


@dataclass(frozen=True, slots=True)
class ProgramSettings:
    """What Karpenter is told, as Dovetail understands it.

    Attributes:
        cluster, queue: "" where it is not said.
        ca_bundle: base64; "" where it is not said.
        unknown: names of flags and variables that Dovetail does not know.
        said: what else is to be told of them, sentences.
    """

    cluster: str = ""
    queue: str = ""
    ca_bundle: str = ""
    unknown: tuple[str, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that this version does not know, of an object such as `NodePool "default"`."""

    object: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeoverInput:
    """All that the findings are made from.

    Attributes:
        source: for people: the cluster's address, or "files".
        namespace: of Dovetail.
        definitions: CustomResourceDefinitions of our kinds.
        unread: what could not be read, a sentence each; nothing may be concluded of it.
        watched: namespaces in which the Lease of another autoscaler is looked for, by program.
        leads: namespaces in which another autoscaler holds its Lease, by program.
        settings: of Karpenter's Deployments, by "namespace/name".
        authority: base64 of the cluster's CA; None where it is not known.
    """

    source: str
    namespace: str = names.OWN_NAMESPACE
    programs: tuple[ProgramDeployment, ...] = ()
    definitions: tuple[FoundDefinition, ...] = ()
    webhooks: tuple[WebhookSet, ...] = ()
    releases: tuple[HelmRelease, ...] = ()
    leases: tuple[Lease, ...] = ()
    config_maps: tuple[ConfigMap, ...] = ()
    pools: tuple[NodePool, ...] = ()
    claims: tuple[NodeClaim, ...] = ()
    classes: tuple[EC2NodeClass, ...] = ()
    overlays: tuple[NodeOverlay, ...] = ()
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    strange: tuple[UnknownField, ...] = ()
    unread: tuple[str, ...] = ()
    watched: Mapping[ProgramKind, tuple[str, ...]] = field(default_factory=dict)
    leads: Mapping[ProgramKind, str] = field(default_factory=dict)
    settings: Mapping[str, ProgramSettings] = field(default_factory=dict)
    authority: str | None = None

    def programs_of(self, kind: ProgramKind) -> tuple[ProgramDeployment, ...]:
        """Deployments of this program."""
        return tuple(one for one in self.programs if one.kind is kind)

    @property
    def provider(self) -> str:
        """That of our provisioner, as its Deployment says; else the one that serves EC2NodeClasses, which Karpenter has."""
        programs = self.programs_of(ProgramKind.DOVETAIL)
        said = [flag.partition("=")[2] for one in programs for flag in one.flags if flag.startswith("--provider=")]
        said += [one.variables.get("DOVETAIL_PROVIDER", "") for one in programs]
        return next(filter(None, said), PROVIDERS[ec2.GROUP, ec2.KIND])

    def config_map(self, name: str) -> ConfigMap | None:
        """In our namespace."""
        wanted = (self.namespace, name)
        return next((one for one in self.config_maps if (one.metadata.namespace, one.metadata.name) == wanted), None)


def config_map_names() -> tuple[str, ...]:
    """Those of our namespace that are read."""
    return (names.SETTINGS_CONFIGMAP, names.TAKEOVER_CONFIGMAP)


def decoded(kind: type[Any], document: Mapping[str, Any]) -> Any:
    """A document as a type.

    Raises:
        msgspec.MsgspecError: it is not.
    """
    return msgspec.convert(document, kind, strict=False)


def named(kind: str, name: str) -> str:
    """An object for people."""
    return f'{kind} "{name}"'


def sorted_by_name(objects: Iterable[Any]) -> tuple[Any, ...]:
    """By namespace and name."""
    return tuple(sorted(objects, key=lambda one: (one.metadata.namespace, one.metadata.name)))
