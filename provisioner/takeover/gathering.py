"""Reads a cluster into a `TakeoverInput`, or takes the documents of files into one. Nothing is written."""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from provisioner.apis.conversion.ownership import (
    RELEASE_NAME,
    RELEASE_NAMESPACE,
    ClusterAutoscalerLeases,
    KarpenterLeases,
    SeenLeases,
)
from provisioner.apis.core import Lease
from provisioner.apis.ec2 import NewerEC2NodeClass
from provisioner.apis.karpenter import NewerNodePool
from provisioner.apis.openapi import definition_of, unknown_fields
from provisioner.kube import resources
from provisioner.kube.client import Client
from provisioner.kube.errors import ApiError, Forbidden, NotFound
from provisioner.kube.resources import Resource
from provisioner.kube.survey import Unreadable, surveyed
from provisioner.options import HelpRequested, Options, OptionsError, command
from provisioner.support.clock import Clock
from provisioner.takeover.checking import OUR_DEFINITIONS
from provisioner.takeover.helm_release import SECRET_TYPE, ReleaseError, release_of
from provisioner.takeover.node_groups import NodeGroupError, group_of
from provisioner.takeover.takeover_input import (
    FoundDefinition,
    ProgramDeployment,
    ProgramKind,
    ProgramSettings,
    TakeoverInput,
    UnknownField,
    WebhookSet,
    config_map_names,
    named,
    sorted_by_name,
)

_IGNORED: Final = frozenset(
    {
        "KUBERNETES_MIN_VERSION",
        "DISABLE_WEBHOOK",
        "WEBHOOK_PORT",
        "WEBHOOK_METRICS_PORT",
        "WEBHOOK_SERVICE",
        "POD_NAME",
        "POD_NAMESPACE",
    }
)
"""Variables that Karpenter's charts set, and that mean nothing to the scaling of nodes."""
_OTHERS: Final = ("AWS_", "GO", "HTTP_", "HTTPS_", "NO_PROXY", "OTEL_", "SSL_CERT_")
"""Beginnings of variables that libraries read."""
_RELEASES: Final = ("karpenter-crd", "karpenter", "dovetail-crd", "dovetail")
_MOST_NAMED: Final = 5

NODE_GROUP: Final = "NodeGroup"
"""Where node groups stand among the kinds; they are no part of the input."""
Take = Callable[["InputBuilder", bytes], None]


class InputBuilder:
    """Takes objects one by one; one that cannot be read becomes a sentence and stops no other. Not thread-safe.

    Args:
        source, namespace: as of `TakeoverInput`.
        other_namespace: of a Karpenter or Cluster Autoscaler that runs elsewhere than usual; "" for none.
    """

    def __init__(self, source: str, namespace: str, other_namespace: str = "") -> None:
        self.source, self.namespace = source, namespace
        self.karpenter = KarpenterLeases(namespace, other_namespace)
        self.cluster_autoscaler = ClusterAutoscalerLeases(other_namespace)
        self.found: dict[str, list[Any]] = {}
        self.strange: list[UnknownField] = []
        self.unread: list[str] = []
        self.authority: str | None = None

    def take(self, kind: str, data: bytes, name: str = "") -> None:
        """One object; of a kind that does not matter nothing is kept."""
        try:
            _TAKE[kind](self, data)
        except (msgspec.MsgspecError, ReleaseError, ValueError) as error:
            self.complain(f"{named(kind, name)} cannot be read: {str(error)[:200]}")

    def complain(self, sentence: str) -> None:
        """Something is not known."""
        self.unread.append(sentence)

    def add(self, kind: str, one: object) -> None:
        """Keep a decoded object."""
        self.found.setdefault(kind, []).append(one)

    def all(self, kind: str) -> list[Any]:
        """What was taken of a kind."""
        return self.found.get(kind, [])

    def built(self, now: float) -> TakeoverInput:
        """What it comes to. `now`: monotonic seconds, for Leases."""
        leases: list[Lease] = self.all("Lease")
        karpenter = [one for one in leases if one.metadata.name == self.karpenter.name]
        others = [one for one in leases if one.metadata.name == self.cluster_autoscaler.name]
        leads = {
            ProgramKind.KARPENTER: self.karpenter.beside(karpenter, now),
            ProgramKind.CLUSTER_AUTOSCALER: self.cluster_autoscaler.beside(others, now),
        }
        programs = sorted_by_name(self.all("Deployment"))
        settings = {one.named: settings_of(one) for one in programs if one.kind is ProgramKind.KARPENTER}
        return TakeoverInput(
            source=self.source,
            namespace=self.namespace,
            programs=programs,
            definitions=sorted_by_name(self.all("CustomResourceDefinition")),
            webhooks=sorted_by_name(
                [*self.all("MutatingWebhookConfiguration"), *self.all("ValidatingWebhookConfiguration")]
            ),
            releases=tuple(self.all("Secret")),
            leases=tuple(leases),
            config_maps=tuple(self.all("ConfigMap")),
            pools=sorted_by_name(self.all("NodePool")),
            claims=sorted_by_name(self.all("NodeClaim")),
            classes=sorted_by_name(self.all("EC2NodeClass")),
            overlays=sorted_by_name(self.all("NodeOverlay")),
            nodes=sorted_by_name(self.all("Node")),
            pods=tuple(sorted(self.all("Pod"), key=lambda one: one.key)),
            budgets=sorted_by_name(self.all("PodDisruptionBudget")),
            strange=tuple(self.strange),
            unread=tuple(dict.fromkeys(self.unread)),
            watched={
                ProgramKind.KARPENTER: self.karpenter.namespaces,
                ProgramKind.CLUSTER_AUTOSCALER: self.cluster_autoscaler.namespaces,
            },
            leads={kind: where for kind, where in leads.items() if where},
            settings=settings,
            authority=self.authority,
        )


def _typed(resource: Resource[Any]) -> Take:
    return lambda builder, data: builder.add(resource.kind, resource.decode(data))


def _with_fields(resource: Resource[Any]) -> Take:
    """And what of its spec this version does not know."""

    def take(builder: InputBuilder, data: bytes) -> None:
        one = resource.decode(data)
        builder.add(resource.kind, one)
        if isinstance(one, NewerNodePool | NewerEC2NodeClass):
            paths = one.unread
        else:
            definition = definition_of(resource.api_version, resource.kind)
            found = unknown_fields(definition, msgspec.json.decode(data)) if definition is not None else []
            paths = tuple(sorted(each.path for each in found))
        builder.strange += [UnknownField(named(resource.kind, one.metadata.name), path) for path in paths]

    return take


def _take_program(builder: InputBuilder, data: bytes) -> None:
    one = msgspec.json.decode(data, type=ProgramDeployment)
    if one.kind is not None:
        builder.add("Deployment", one)


def _take_definition(builder: InputBuilder, data: bytes) -> None:
    one = msgspec.json.decode(data, type=FoundDefinition)
    if one.metadata.name in OUR_DEFINITIONS:
        builder.add("CustomResourceDefinition", one)


def _take_webhooks(kind: str) -> Take:
    def take(builder: InputBuilder, data: bytes) -> None:
        one = msgspec.json.decode(data, type=WebhookSet)
        builder.add(kind, msgspec.structs.replace(one, kind=kind))

    return take


def _take_lease(builder: InputBuilder, data: bytes) -> None:
    one = resources.LEASES.decode(data)
    if one.metadata.name in (builder.karpenter.name, builder.cluster_autoscaler.name):
        builder.add("Lease", one)


def _take_config_map(builder: InputBuilder, data: bytes) -> None:
    one = resources.CONFIGMAPS.decode(data)
    if one.metadata.namespace == builder.namespace and one.metadata.name in config_map_names():
        builder.add("ConfigMap", one)


def _take_secret(builder: InputBuilder, data: bytes) -> None:
    secret = resources.SECRETS.decode(data)
    if secret.type != SECRET_TYPE:
        return
    release = release_of(secret)
    if release.kept or release.unkept:
        builder.add("Secret", release)


_TAKE: Final[Mapping[str, Take]] = {
    "Deployment": _take_program,
    "CustomResourceDefinition": _take_definition,
    "MutatingWebhookConfiguration": _take_webhooks("MutatingWebhookConfiguration"),
    "ValidatingWebhookConfiguration": _take_webhooks("ValidatingWebhookConfiguration"),
    "Lease": _take_lease,
    "ConfigMap": _take_config_map,
    "Secret": _take_secret,
    "NodePool": _with_fields(resources.NODEPOOLS),
    "NodeClaim": _with_fields(resources.NODECLAIMS),
    "EC2NodeClass": _with_fields(resources.EC2NODECLASSES),
    "NodeOverlay": _with_fields(resources.NODEOVERLAYS),
    "Node": _typed(resources.NODES),
    "Pod": _typed(resources.PODS),
    "PodDisruptionBudget": _typed(resources.PDBS),
}
_GROUPS: Final[Mapping[str, str]] = {
    "Deployment": "apps/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    "MutatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "ValidatingWebhookConfiguration": "admissionregistration.k8s.io/v1",
    "Lease": "coordination.k8s.io/v1",
    "PodDisruptionBudget": "policy/v1",
    **{
        one.kind: one.api_version
        for one in (resources.NODEPOOLS, resources.NODECLAIMS, resources.EC2NODECLASSES, resources.NODEOVERLAYS)
    },
}
_LISTED: Final = (
    resources.NODEPOOLS,
    resources.NODECLAIMS,
    resources.EC2NODECLASSES,
    resources.NODEOVERLAYS,
    resources.DEPLOYMENTS,
    resources.MUTATINGWEBHOOKS,
    resources.VALIDATINGWEBHOOKS,
    resources.NODES,
    resources.PODS,
    resources.PDBS,
)


# --- from files -----------------------------------------------------------------------------------------------------


def take_document(builder: InputBuilder, document: object) -> None:
    """One object of a file, or node groups as the AWS CLI describes them; kinds that do not matter are passed over."""
    if isinstance(document, list):
        for one in document:
            take_document(builder, one)
        return
    try:
        if (group := group_of(document)) is not None:
            builder.add(NODE_GROUP, group)
            return
    except NodeGroupError as error:
        builder.complain(str(error))
        return
    if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
        builder.complain("a document is not a Kubernetes object; every object needs apiVersion, kind and metadata")
        return
    kind = document["kind"]
    if kind not in _TAKE or document.get("apiVersion") != _GROUPS.get(kind, "v1"):
        return
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    if kind == "Pod" and not metadata.get("namespace"):
        document = {**document, "metadata": {**metadata, "namespace": "default"}}
    builder.take(kind, msgspec.json.encode(document), str(metadata.get("name", "")))


# --- from a cluster -------------------------------------------------------------------------------------------------


def read_cluster(
    builder: InputBuilder, client: Client, authority: bytes, kinds: Iterable[Resource[Any]] = _LISTED
) -> None:
    """Everything that is looked at. What may not be read, or is not answered, becomes a sentence.

    Raises:
        ApiError: the server cannot be reached at all.
    """
    builder.authority = base64.b64encode(authority).decode() if authority else None
    for kind in kinds:
        _list(builder, client, kind)
    if resources.DEPLOYMENTS in kinds:
        for name in OUR_DEFINITIONS:
            _get(builder, client, resources.CRDS, name)
        _read_releases(builder, client)
    read_leases(builder, client)
    for name in config_map_names():
        _get(builder, client, resources.CONFIGMAPS, name, builder.namespace)


def read_leases(builder: InputBuilder, client: Client) -> None:
    """The Leases of the other autoscalers as they are now, and ours, in place of those that were read before."""
    builder.found["Lease"] = []
    for leases, more in ((builder.karpenter, (builder.namespace,)), (builder.cluster_autoscaler, ())):
        for namespace in (*leases.namespaces, *more):
            _get(builder, client, resources.LEASES, leases.name, namespace)


def leases_beside(client: Client, leases: SeenLeases, clock: Clock) -> str:
    """The namespace in which the other program leads now; "" for none.

    Raises:
        ApiError: the server did not answer, or a Lease may not be read.
    """
    found = (client.find(resources.LEASES, leases.name, namespace) for namespace in leases.namespaces)
    return leases.beside([one for one in found if one is not None], clock.monotonic())


def _list(builder: InputBuilder, client: Client, kind: Resource[Any]) -> None:
    try:
        for one in surveyed(client, kind, decode=bytes):
            if isinstance(one, Unreadable):
                builder.complain(f"{named(kind.kind, one.key)} cannot be read: {one.error}")
            else:
                builder.take(kind.kind, one, _name_in(one))
    except NotFound:
        return  # a CRD that is not installed
    except Forbidden:
        builder.complain(f"{kind} may not be read; grant this user the verb list on {kind}")
    except ApiError as error:
        if error.status == 0:
            raise
        builder.complain(f"{kind} could not be read: {error}")


def _get(builder: InputBuilder, client: Client, kind: Resource[Any], name: str, namespace: str = "") -> None:
    try:
        builder.take(kind.kind, client.raw("GET", kind.path(namespace, name)), name)
    except NotFound:
        return
    except Forbidden:
        where = f" in namespace {namespace}" if namespace else ""
        builder.complain(f"{kind} {name}{where} may not be read; grant this user the verb get on {kind}")
    except ApiError as error:
        if error.status == 0:
            raise
        builder.complain(f"{kind} {name} could not be read: {error}")


def _name_in(data: bytes) -> str:
    return resources.identity_in(data).name


def _read_releases(builder: InputBuilder, client: Client) -> None:
    """Helm's releases that may own definitions: those that the definitions name, and those of the usual names."""
    wanted: dict[str, set[str]] = {}
    for one in builder.all("CustomResourceDefinition"):
        annotations = one.metadata.annotations
        if RELEASE_NAME in annotations:
            wanted.setdefault(annotations.get(RELEASE_NAMESPACE, ""), set()).add(annotations[RELEASE_NAME])
    namespaces = {*wanted, *builder.karpenter.namespaces, builder.namespace} - {""}
    for namespace in sorted(namespaces):
        for name in sorted({*wanted.get(namespace, ()), *_RELEASES}):
            _read_release(builder, client, namespace, name)


def _read_release(builder: InputBuilder, client: Client, namespace: str, name: str) -> None:
    selectors = {"labelSelector": f"owner=helm,name={name}"}
    try:
        for item in client.items(resources.SECRETS, namespace, selectors, 20):
            builder.take("Secret", bytes(item), f"{namespace}/{name}")
    except Forbidden:
        builder.complain(
            f"Secrets of Helm releases in namespace {namespace} may not be read, so it is not known which CRDs they delete; "
            f"grant this user the verb list on secrets there"
        )
    except NotFound:
        return


# --- settings -------------------------------------------------------------------------------------------------------


def settings_of(program: ProgramDeployment) -> ProgramSettings:
    """What a Deployment of Karpenter is told, as our own command line reads it."""
    flags, variables = _known()
    unknown = [f"flag {one.partition('=')[0]}" for one in program.flags if _flag(one) not in flags]
    unknown += [
        f"variable {name}"
        for name in sorted(program.variables)
        if name not in variables and name not in _IGNORED and not name.startswith(_OTHERS)
    ]
    usable = [one for one in program.flags if _flag(one) in flags]
    given = {name: value for name, value in program.variables.items() if name in variables}
    try:
        options = Options.parse(usable, given)
    except (OptionsError, HelpRequested) as error:
        return ProgramSettings(
            given.get("CLUSTER_NAME", ""), given.get("INTERRUPTION_QUEUE", ""), "", tuple(unknown), (str(error),)
        )
    return ProgramSettings(
        options.cluster_name,
        options.interruption_queue,
        options.cluster_ca_bundle,
        tuple(unknown),
        options.without_effect(),
    )


def _flag(word: str) -> str:
    return word.lstrip("-").partition("=")[0].replace("_", "-")


def _known() -> tuple[frozenset[str], frozenset[str]]:
    """Flags and variables of Karpenter that we have."""
    settings = [one for one in command().params if not str(one.envvar).startswith("DOVETAIL_")]
    return frozenset(one.opts[0].lstrip("-") for one in settings), frozenset(str(one.envvar) for one in settings)
