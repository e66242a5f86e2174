"""What is stamped on a pod at admission: a pure decision from the pod and a few facts.

Nothing is stamped without an opt-in. The settings, each as an annotation on the pod, a label on its namespace, or
(without the prefix) a key of the ConfigMap `dovetail-defaults`; the first of these three that has the setting decides:

| setting | value | effect |
|---|---|---|
| `dovetail.dev/arch` | `amd64`, `arm64`, or a list | required node affinity on `kubernetes.io/arch` |
| `dovetail.dev/os` | `linux`, `windows`, or a list | required node affinity on `kubernetes.io/os` |
| `dovetail.dev/capacity-type` | `spot`, `on-demand`, `reserved`, or a list | ... on `karpenter.sh/capacity-type` |
| `dovetail.dev/nodepool` | a NodePool's name, or a list | ... on `karpenter.sh/nodepool`, and tolerations of the taints of these NodePools |
| `dovetail.dev/on-demand` | `30%` (in labels `30pct`), or a number | so many pods of an owner require on-demand (or reserved) nodes, the others prefer spot |
| `dovetail.dev/spread` | `zone` | topology spread over zones, ScheduleAnyway, for pods without one of their own |
| `dovetail.dev/protect-jobs` | `enabled` or `disabled` | `karpenter.sh/do-not-disrupt: "true"` on pods of Jobs |
| `dovetail.dev/scheduler` | `enabled` or `disabled` | our scheduler's name, over `default-scheduler` only, while it is alive |
| `dovetail.dev/image-arch` | `stamp` or `gate` | required node affinity on the architectures of all images; `gate` holds the pod until they are known |
| `dovetail.dev/legacy-labels` | `rewrite` or `keep` | renames deprecated node labels in the pod's own selectors and topology keys, and do-not-disrupt |
| `dovetail.dev/stamp` | `disabled` or `enabled` | `disabled` in any place (a label of the pod too) wins over everything |

Lists are separated by commas; a label value may not hold a comma, so on a namespace `_` separates too (no legal value
of these settings contains one): `dovetail.dev/arch: amd64_arm64`. An empty value switches the setting off for that pod.
A value that is not known stamps nothing and returns a warning to whoever creates the pod, which is admitted.

What the pod says itself always wins: a key in its nodeSelector or in every required term is left alone. Required terms
are ORed, so otherwise the requirement goes into each term that lacks the key, and into none that names its nodes (matchFields).
A pod for Windows (spec.os, windowsOptions, or a label that only Windows nodes have) gets no other operating system stamped, and
no architecture that Windows nodes do not have. Deciding twice changes nothing (the API
server may call again: `reinvocationPolicy: IfNeeded`). Pods of other schedulers are left alone: nobody knows what these make of it.
A pod with a list that is too long to be planned, or that would need too large a patch, is left alone with a warning: the API server validates it only later.
What was done is recorded in `dovetail.dev/stamped`, one entry a stamp with the level that asked for it and, where it is not the level alone, why:
`arch=arm64 (namespace); do-not-disrupt=true (cluster: pod of Job nightly)`.
"""

import enum
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import msgspec

from provisioner.apis import names, podpatch, shares
from provisioner.apis.core import Container, NodeAffinity, NodeSelectorTerm, PodTemplateSpec
from provisioner.apis.gangs import gang_error, is_job
from provisioner.apis.meta import OwnerReference
from provisioner.apis.podpatch import Operation
from provisioner.apis.selections import MOST_ELEMENTS, PREFERRED, REQUIRED, too_long
from provisioner.apis.shares import Seat, Share, ShareOwner, Side
from provisioner.values.message import Said
from provisioner.values.taints import Taint, Toleration, tolerates

PREFIX = f"{names.DOVETAIL}/"
DISABLED = "disabled"
SYSTEM_NAMESPACES = ("kube-system", "kube-node-lease")
SCHEDULER_STAMP = "schedulerName"
LEGACY_STAMP = names.STAMP_LEGACY_LABELS.removeprefix(PREFIX)
TOLERATIONS_STAMP = "tolerations"
SPREAD_STAMP = names.STAMP_SPREAD.removeprefix(PREFIX)
PROTECT_STAMP = "do-not-disrupt"
SHARE_STAMP = names.STAMP_ON_DEMAND.removeprefix(PREFIX)
IMAGE_STAMP = names.STAMP_IMAGE_ARCH.removeprefix(PREFIX)

MAX_ANNOTATION_BYTES = 256 * 1024
"""What the API server admits of all keys and values of one object."""

MAX_TOLERATIONS = 32
"""Tolerations that are added to one pod at most."""

MAX_VALUES = 64
"""Values of one setting; each required term of the pod gets all of them."""

MAX_OPERATIONS = 4096
"""What rewriting the labels of one pod may take."""

MAX_IMAGES = 32
"""A pod with more different images is left alone."""
MAX_PULL_SECRETS = 4
"""The first of the pod's that are looked at."""

ARCHITECTURES = frozenset({"amd64", "arm64"})
"""Those that nodes of ours can have: an image for all of them needs no stamp."""

_AMD64 = "amd64"
_I386 = "386"
"""Runs on amd64 too. Source: containerd's `platforms.Only`. Differs: arm is not taken to run on arm64, whose newer processors have no 32-bit mode."""

_LINUX = "linux"
_WINDOWS = "windows"
_WINDOWS_ARCHITECTURES = (_AMD64,)
"""What Kubernetes' Windows nodes can be."""

NODEPOOL_NAME_PATTERN = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
_NODEPOOL_NAME = re.compile(NODEPOOL_NAME_PATTERN)
_NOT_INTERRUPTED = tuple(sorted({names.CAPACITY_ON_DEMAND, names.CAPACITY_RESERVED}))
_SHARING = frozenset({("ReplicaSet", "apps"), ("StatefulSet", "apps"), ("Job", "batch")})
"""Controllers whose pods are alike, by kind and group."""
NOT_OF_BROTHERS = names.PER_POD_LABELS | {names.ON_DEMAND_SHARE_LABEL}
"""Labels that tell the pods of one owner apart: nothing selects brothers by them."""
_SPOT_WEIGHT = 100
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(PodTemplateSpec).decode
_STAMPED_FOR_IMAGES: Final = Said("architectures of the images")
_IMAGES_HAVE_NO_COMMON_ARCHITECTURE: Final = (
    "dovetail: the images of the pod have no architecture in common, so no node can run all of its containers. "
    "kubernetes.io/arch was not stamped"
)


class StampOutcome(enum.StrEnum):
    """What became of a review; the `outcome` label of the request counter."""

    STAMPED = "stamped"
    UNCHANGED = "unchanged"
    EXEMPT = "exempt"
    OPTED_OUT = "opted-out"


Pod: TypeAlias = PodTemplateSpec
"""At admission a pod has nothing yet but what a template says."""
Platforms = frozenset[tuple[str, str]]
"""Operating system and architecture of each image behind one reference, in Go's words."""


@dataclass(frozen=True, slots=True)
class ImagesAsked:
    """What is to be known of a pod's images before it is decided on.

    Attributes:
        namespace: of the pod, whose pull secrets are meant.
        images: as the containers name them, each once.
        secrets: names of pull secrets.
    """

    namespace: str
    images: tuple[str, ...]
    secrets: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Images:
    """What is known of images.

    Attributes:
        found: what the images that are known were built for.
        pending: images that are being looked up. Of those that are in neither nothing will be known soon.
        may_gate: whether pods can be held, because somebody is there who lets them go.
    """

    found: Mapping[str, Platforms] = field(default_factory=dict)
    pending: frozenset[str] = frozenset()
    may_gate: bool = False


@dataclass(frozen=True)
class StampFacts:
    """What the decision knows beside the pod; gathered by `webhook.facts`."""

    namespace: str
    """The namespace of the request; the pod's own may still be empty."""
    namespace_labels: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict)
    """`data` of the ConfigMap `dovetail-defaults`; empty where there is none."""
    own_namespace: str = names.OWN_NAMESPACE
    scheduler_name: str = names.SCHEDULER_NAME
    scheduler_alive: bool = False
    """Whether the Lease of our scheduler is fresh, so that a pod given to it will be bound."""
    taints_of: Callable[[str], Sequence[Taint] | None] | None = None
    """The taints of a NodePool by its name, None for one that is not there; None as a whole while NodePools cannot be read."""
    seat: Seat | None = None
    """What the pod is for, by the share that `share_of` found; None while pods are not counted."""
    images: Images | None = None
    """What is known of the images that `images_of` found; None while images are not looked up."""
    review: str = ""
    """The uid of the admission review."""


@dataclass(frozen=True)
class StampDecision:
    """The answer for one pod."""

    outcome: StampOutcome
    operations: tuple[Operation, ...] = ()
    stamped: tuple[str, ...] = ()
    """What this patch does, in the words of the annotation, sorted."""
    warnings: tuple[str, ...] = ()
    scheduler_held_back: bool = False
    """Our scheduler was asked for but is not alive, so the pod stays with the default one."""


@dataclass(frozen=True)
class AffinitySetting:
    """A setting that becomes a required node affinity."""

    key: str
    label: str
    accepts: Callable[[str], bool]
    expected: str
    values: tuple[str, ...] = ()
    """All that is accepted, sorted; empty where that is no list."""

    @property
    def name(self) -> str:
        """The word for it in the ConfigMap and in the record."""
        return self.key.removeprefix(PREFIX)


def _one_of(key: str, label: str, *values: str) -> AffinitySetting:
    return AffinitySetting(key, label, frozenset(values).__contains__, "one of " + ", ".join(values), values)


AFFINITY_SETTINGS = (
    _one_of(names.STAMP_ARCH, names.ARCH_LABEL, "amd64", "arm64"),
    _one_of(names.STAMP_OS, names.OS_LABEL, "linux", "windows"),
    _one_of(names.STAMP_CAPACITY_TYPE, names.CAPACITY_TYPE_LABEL, *sorted(names.CAPACITY_TYPES)),
    AffinitySetting(
        names.STAMP_NODEPOOL,
        names.NODEPOOL_LABEL,
        lambda value: _NODEPOOL_NAME.fullmatch(value) is not None,
        "the name of a NodePool (lower case letters, digits, '-' and '.', at most 63)",
    ),
)

_ASKING = (
    *(setting.key for setting in AFFINITY_SETTINGS),
    names.STAMP_SCHEDULER,
    names.STAMP_LEGACY_LABELS,
    names.STAMP_SPREAD,
    names.STAMP_PROTECT_JOBS,
    names.STAMP_ON_DEMAND,
    names.STAMP_IMAGE_ARCH,
)
"""Every setting that may change a pod."""

STAMPS = frozenset(
    {setting.name for setting in AFFINITY_SETTINGS}
    | {SCHEDULER_STAMP, LEGACY_STAMP, TOLERATIONS_STAMP, SPREAD_STAMP, PROTECT_STAMP, SHARE_STAMP, IMAGE_STAMP}
)
"""Every stamp, by its name in the record and in metrics."""

POD, NAMESPACE, CLUSTER = "pod", "namespace", "cluster"
"""The levels at which settings stand, nearest first."""

_SEPARATORS = re.compile(r"[;()]")
LONGEST_WORDS = 120
LONGEST_RECORD = 4096
ENTRY_PATTERN = r"[A-Za-z-]+=[^;()]{1,120} \((?:pod|namespace|cluster)(?:: [^;()]{1,120})?\)"
_ENTRY = re.compile(ENTRY_PATTERN)


@dataclass(frozen=True)
class _Found:
    """A setting's value and where it stood."""

    value: str
    place: str
    level: str
    """`pod`, `namespace` or `cluster`."""

    def __str__(self) -> str:
        return f"{self.place}: {self.value!r}"


class _Settings:
    """The three places where settings stand, nearest first."""

    def __init__(self, pod: Pod, facts: StampFacts) -> None:
        self._pod = pod.metadata.annotations
        self._pod_labels = pod.metadata.labels
        self._facts = facts

    def find(self, key: str) -> _Found | None:
        return next(self._standing(key), None)

    def _standing(self, key: str) -> Iterator[_Found]:
        """A setting in every place where it stands."""
        name = key.removeprefix(PREFIX)
        if key in self._pod:
            yield _Found(self._pod[key].strip(), f"annotation {key} of the pod", POD)
        if key in self._facts.namespace_labels:
            place = f"label {key} of namespace {self._facts.namespace}"
            yield _Found(self._facts.namespace_labels[key], place, NAMESPACE)
        if name in self._facts.defaults:
            place = f"key {name} of ConfigMap {names.DEFAULTS_CONFIGMAP}"
            yield _Found(self._facts.defaults[name].strip(), place, CLUSTER)

    def asks_for(self, key: str) -> bool:
        """Whether a setting stands anywhere and is not empty."""
        found = self.find(key)
        return found is not None and bool(found.value)

    def ask(self) -> bool:
        """Whether any setting asks for a change."""
        found = map(self.find, _ASKING)
        return any(one is not None and one.value not in ("", DISABLED, "keep") for one in found)

    def enabled(self, key: str, draft: "_Draft", stamp: str) -> _Found | None:
        """A setting that is switched on; None where it is off, or says something else, which is told."""
        found = self.find(key)
        if found is None or found.value in ("", DISABLED):
            return None
        if found.value != "enabled":
            draft.warnings.append(f"dovetail: {found} is not supported; use enabled or disabled. {stamp} was not set")
            return None
        return found

    def opt_outs(self) -> Iterator[_Found]:
        """Every place that speaks about stamping at all; no place shadows another here."""
        if names.STAMP_SWITCH in self._pod_labels:
            yield _Found(self._pod_labels[names.STAMP_SWITCH], f"label {names.STAMP_SWITCH} of the pod", POD)
        yield from self._standing(names.STAMP_SWITCH)


@dataclass
class _Draft:
    """The answer while it is being made."""

    operations: list[Operation] = field(default_factory=list)
    stamped: dict[str, str] = field(default_factory=dict)
    """By stamp, the entry of the record."""
    annotations: dict[str, str] = field(default_factory=dict)
    """Those that the pod gets."""
    labels: dict[str, str] = field(default_factory=dict)
    """Those that the pod gets."""
    warnings: list[str] = field(default_factory=list)
    scheduler_held_back: bool = False

    def note(self, stamp: str, value: str, found: _Found, why: str = "") -> None:
        """Record a stamp."""
        self.stamped[stamp] = _entry(stamp, value, found, why)


def _entry(stamp: str, value: str, found: _Found, why: str = "") -> str:
    """A stamp in the record, in bounded words that can be read back."""
    reason = f": {_worded(why)}" if why else ""
    return f"{stamp}={_worded(value)} ({found.level}{reason})"


def _worded(text: str) -> str:
    plain = _SEPARATORS.sub("_", text)
    return plain if len(plain) <= LONGEST_WORDS else f"{plain[: LONGEST_WORDS - 3]}..."


def is_of_daemonset(pod: Pod) -> bool:
    """Whether the DaemonSet controller made the pod, for one node; a name in an owner reference alone is nobody's word."""
    terms = _required_terms(pod)
    return (
        bool(terms)
        and all(_is_pinned(term) for term in terms or ())
        and any(
            owner.kind == "DaemonSet"
            and owner.api_version.startswith("apps/")
            and owner.controller is True
            and pod.metadata.generate_name == f"{owner.name}-"
            for owner in pod.metadata.owner_references
        )
    )


def is_exempt(pod: Pod, facts: StampFacts) -> bool:
    """Whether the pod is never stamped: static, bound or DaemonSet pods, those of other schedulers, and the system's own namespaces.

    The webhook configuration says the same but for schedulers (`webhook.registration`), so such pods normally never come here.
    """
    return (
        facts.namespace in SYSTEM_NAMESPACES
        or facts.namespace == facts.own_namespace
        or bool(pod.spec.node_name)
        or names.CONFIG_MIRROR in pod.metadata.annotations
        or pod.spec.scheduler_name not in ("", names.DEFAULT_SCHEDULER_NAME, facts.scheduler_name)
        or is_of_daemonset(pod)
    )


def decide(pod: Pod, facts: StampFacts) -> StampDecision:
    """The patch for one pod, with the reasons that people and metrics see.

    Pure and idempotent: applied to the patched pod it returns no further operation. A user's array is never replaced,
    a parent is created only where it is absent or empty.
    """
    if is_exempt(pod, facts):
        return StampDecision(StampOutcome.EXEMPT)
    settings = _Settings(pod, facts)
    draft = _Draft()
    if _opted_out(settings, draft):
        return StampDecision(StampOutcome.OPTED_OUT, warnings=tuple(draft.warnings))
    if problem := _too_long(pod):
        return StampDecision(StampOutcome.UNCHANGED, warnings=(problem,) if settings.ask() else ())
    _rewrite_legacy(pod, settings, draft)
    _require_labels(pod, settings, facts, draft)
    _spread(pod, settings, draft)
    _protect_job(pod, settings, draft)
    _choose_scheduler(pod, settings, facts, draft)
    _warn_of_gang(pod, draft)
    draft.operations.extend(_entered(pod.metadata.labels, "labels", draft.labels))
    if draft.stamped and not _record(pod, draft):
        return StampDecision(
            StampOutcome.UNCHANGED,
            warnings=(
                Said(
                    "dovetail: the annotations of the pod are too large for the record of the changes. The pod was "
                    "not changed"
                ),
            ),
        )
    return StampDecision(
        StampOutcome.STAMPED if draft.operations else StampOutcome.UNCHANGED,
        tuple(draft.operations),
        tuple(sorted(draft.stamped)),
        tuple(draft.warnings),
        draft.scheduler_held_back,
    )


def _too_long(pod: Pod) -> str:
    """The warning about a list of the pod that is too long for it to be planned, "" where there is none."""
    ports = {port for one in _containers(pod) for port in one.ports if port.host_port}
    found = too_long(pod.spec.affinity, pod.spec.tolerations, pod.spec.topology_spread_constraints, ports)
    if found is None:
        return ""
    _, what, count = found
    return Said(
        f"dovetail: the pod has {count} {what}; only pods with at most {MOST_ELEMENTS} are planned. "
        "The pod was not changed; remove some"
    )


def share_of(pod: Pod, facts: StampFacts) -> tuple[ShareOwner, Share] | None:
    """Whose pods are to be counted before `decide`, and for what share; None where nothing is to be counted."""
    settings = _Settings(pod, facts)
    asked = _asked_share(pod, settings, facts)
    if asked is None or asked.problem or is_exempt(pod, facts) or _opted_out(settings, _Draft()) or _too_long(pod):
        return None  # of a problem, `decide` tells
    return asked.owner, asked.share


def seats(template: PodTemplateSpec, facts: StampFacts, count: int, standing: int) -> list[tuple[int, StampFacts]]:
    """How many of the next pods of a template are decided on by which facts: with a share on demand there are two sides.

    Args:
        template: of the pods, with their owner.
        facts: without a seat.
        count: of the pods.
        standing: pods that the owner has already.
    """
    asked = share_of(template, facts)
    if asked is None or not count:
        return [(count, facts)]
    on_demand = asked[1].of(standing + count) - asked[1].of(standing)
    sides = ((on_demand, Side.ON_DEMAND), (count - on_demand, Side.SPOT))
    return [(some, replace(facts, seat=Seat(side, 1, 0))) for some, side in sides if some]


def stamped(template: PodTemplateSpec, facts: StampFacts) -> PodTemplateSpec:
    """The pod of a template as it is stamped, without what only people see. Cost: as of `decide`, and reading the template anew where it is stamped."""
    operations = decide(template, facts).operations
    if not operations:
        return template
    # read as the API server writes it: what equals a default and is written is another text, by which shapes are told apart
    document = {"metadata": {}, "spec": {}} | msgspec.json.decode(_encode(template))  # a pod has both
    return _decode(_encode(podpatch.patched(document, operations)))


def _opted_out(settings: _Settings, draft: _Draft) -> bool:
    out = False
    for found in settings.opt_outs():
        if found.value in ("", "enabled"):
            continue
        out = True
        if found.value != DISABLED:  # meant as an opt-out, most likely: stamp nothing and say so
            draft.warnings.append(
                f"dovetail: {found} is not supported; use enabled or disabled. The pod was not changed"
            )
    return out


# --- required labels ------------------------------------------------------------------------------------------------


def _require_labels(pod: Pod, settings: _Settings, facts: StampFacts, draft: _Draft) -> None:
    own_os = _own_os(pod)
    wanted: dict[str, tuple[str, ...]] = {}  # label -> sorted values, for the keys that the pod leaves open
    for setting in AFFINITY_SETTINGS:
        found = settings.find(setting.key)
        if found is None or not found.value:
            continue
        values = tuple(sorted({part.strip() for part in re.split("[,_]", found.value) if part.strip()}))
        if len(values) > MAX_VALUES:
            draft.warnings.append(
                f"dovetail: {found.place} holds {len(values)} values, more than the limit of {MAX_VALUES}: "
                f"{setting.label} was not stamped"
            )
            continue
        bad = [value for value in values if not setting.accepts(value)]
        if bad or not values:
            held = _quoted(bad) if bad else "no value"
            draft.warnings.append(
                f"dovetail: {found} holds {held}, want {setting.expected}: {setting.label} was not stamped"
            )
            continue
        if _selects(pod, setting.label):
            continue
        fitting = _fitting(setting.label, values, own_os)
        entry = _entry(setting.name, ",".join(fitting), found)
        required = False
        if not fitting:
            draft.warnings.append(
                f"dovetail: {found}, but the pod's own spec is for {own_os}: {setting.label} was not stamped"
            )
        elif _add_requirement_possible(pod, setting.label, fitting):
            wanted[setting.label] = fitting
            draft.stamped[setting.name] = entry
            required = True
        else:  # by the pod itself, or by the admission policy, which comes first and adds no tolerations
            required = recorded(pod.metadata.annotations).get(setting.name) == entry
        if required and setting.label == names.NODEPOOL_LABEL:
            _tolerate(pod, fitting, found, facts, draft)
    if names.ARCH_LABEL not in wanted and (built_for := _image_architectures(pod, settings, facts, draft)):
        wanted[names.ARCH_LABEL] = built_for
    seat = _seated(pod, settings, facts, draft)
    if seat is not None and seat.side is Side.ON_DEMAND:
        wanted[names.CAPACITY_TYPE_LABEL] = _NOT_INTERRUPTED
    if wanted:
        draft.operations.extend(_affinity_operations(pod, wanted))
    if seat is not None and seat.side is Side.SPOT:
        draft.operations.append(_prefer_spot(pod, bool(wanted)))


def _quoted(values: list[str]) -> str:
    return ", ".join(repr(value) for value in values)


def _containers(pod: Pod) -> Iterable[Container]:
    return itertools.chain(pod.spec.init_containers, pod.spec.containers)


def _own_os(pod: Pod) -> str:
    """The operating system that the whole pod says it is for, "" where it does not say."""
    spec = pod.spec
    if spec.os is not None and spec.os.name:
        return spec.os.name
    contexts = [one.security_context for one in _containers(pod)]
    if any(one is not None and one.windows_options for one in (spec.security_context, *contexts)):
        return _WINDOWS
    selector = {renamed_label(key): value for key, value in spec.node_selector.items()}
    return _WINDOWS if names.WINDOWS_BUILD_LABEL in selector else selector.get(names.OS_LABEL, "")


def _os_of(term: NodeSelectorTerm) -> str:
    """The operating system that a required term is for, "" where it does not say."""
    for expression in term.match_expressions:
        label = renamed_label(expression.key)
        if label == names.WINDOWS_BUILD_LABEL and expression.operator in ("In", "Exists"):
            return _WINDOWS
        if label == names.OS_LABEL and expression.operator == "In" and len(expression.values) == 1:
            return expression.values[0]
    return ""


def _fitting(label: str, values: tuple[str, ...], os: str) -> tuple[str, ...]:
    """Those of the values that do not contradict an operating system; all of them where none is known."""
    if os and label == names.OS_LABEL:
        return tuple(value for value in values if value == os)
    if os == _WINDOWS and label == names.ARCH_LABEL:
        return tuple(value for value in values if value in _WINDOWS_ARCHITECTURES)
    return values


def _selects(pod: Pod, label: str) -> bool:
    return any(renamed_label(key) == label for key in pod.spec.node_selector)


def _add_requirement_possible(pod: Pod, label: str, values: tuple[str, ...]) -> bool:
    terms = _required_terms(pod)
    return terms is None or any(_missing(term, label, values) for term in terms)


def _missing(term: NodeSelectorTerm, label: str, values: tuple[str, ...]) -> tuple[str, ...]:
    """The values that a term should ask for; empty where it is left alone."""
    if not (term.match_expressions or term.match_fields) or _is_pinned(term) or _has_key(term, label):
        return ()  # an empty term matches no node, and with a requirement in it would match some
    return _fitting(label, values, _os_of(term))


def _is_pinned(term: NodeSelectorTerm) -> bool:
    """Whether a term names the nodes that it is for."""
    return any((one.key, one.operator) == ("metadata.name", "In") for one in term.match_fields)


def _required_terms(pod: Pod) -> tuple[NodeSelectorTerm, ...] | None:
    """The required terms, or None where the pod has no required node affinity at all."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.node_affinity is None or affinity.node_affinity.required is None:
        return None
    return affinity.node_affinity.required.node_selector_terms


def _has_key(term: NodeSelectorTerm, label: str) -> bool:
    return any(renamed_label(expression.key) == label for expression in term.match_expressions)


def _expression(label: str, values: tuple[str, ...]) -> dict[str, object]:
    return {"key": label, "operator": "In", "values": list(values)}


def _affinity_operations(pod: Pod, wanted: Mapping[str, tuple[str, ...]]) -> Iterator[Operation]:
    terms = _required_terms(pod)
    if terms is None:
        required = {"nodeSelectorTerms": [{"matchExpressions": [_expression(*item) for item in wanted.items()]}]}
        yield _into_node_affinity(pod, REQUIRED, required)
        return
    for index, term in enumerate(terms):
        path = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms", index, "matchExpressions")
        missing = [
            _expression(label, found) for label, values in wanted.items() if (found := _missing(term, label, values))
        ]
        if missing and not term.match_expressions:
            yield podpatch.add(*path, value=missing)
        else:
            for expression in missing:
                yield podpatch.add(*path, "-", value=expression)


def _into_node_affinity(pod: Pod, part: str, value: object) -> Operation:
    """Sets a part of the node affinity that is not there, with the parents that it lacks."""
    affinity = pod.spec.affinity
    if affinity is None:
        return podpatch.add("spec", "affinity", value={"nodeAffinity": {part: value}})
    if affinity.node_affinity is None:
        return podpatch.add("spec", "affinity", "nodeAffinity", value={part: value})
    return podpatch.add("spec", "affinity", "nodeAffinity", part, value=value)


# --- architectures of images ----------------------------------------------------------------------------------------


def images_of(pod: Pod, facts: StampFacts) -> ImagesAsked | None:
    """Which images are to be known before `decide`; None where it does not matter what they were built for."""
    settings = _Settings(pod, facts)
    if _image_setting(settings) is None or is_exempt(pod, facts) or _opted_out(settings, _Draft()) or _too_long(pod):
        return None
    if _restricts_architecture(pod) or settings.asks_for(names.STAMP_ARCH):
        return None
    images = tuple(dict.fromkeys(one.image for one in _containers(pod)))
    if not images or len(images) > MAX_IMAGES:
        return None
    secrets = tuple(one.name for one in pod.spec.image_pull_secrets[:MAX_PULL_SECRETS] if one.name)
    return ImagesAsked(facts.namespace, images, secrets)


def _image_setting(settings: _Settings) -> _Found | None:
    found = settings.find(names.STAMP_IMAGE_ARCH)
    return None if found is None or found.value in ("", DISABLED) else found


def _restricts_architecture(pod: Pod) -> bool:
    """Whether the pod says itself for which architectures it is, so that there is nothing to add."""
    return _selects(pod, names.ARCH_LABEL) or not _add_requirement_possible(pod, names.ARCH_LABEL, ("",))


def _image_architectures(pod: Pod, settings: _Settings, facts: StampFacts, draft: _Draft) -> tuple[str, ...]:
    """What to require of nodes for the images; empty where nothing is. A pod with images that are still unknown is marked."""
    found = _image_setting(settings)
    if found is None:
        return ()
    if found.value not in ("stamp", "gate"):
        draft.warnings.append(
            f"dovetail: {found} is not supported; use stamp, gate or disabled. kubernetes.io/arch was not stamped"
        )
        return ()
    asked = images_of(pod, facts)
    if asked is None:
        return ()  # nothing was asked for either
    if facts.images is None:
        draft.warnings.append(
            f"dovetail: {found}: the webhook is not looking up images (--image-registries). kubernetes.io/arch was "
            "not stamped"
        )
        return ()
    if not facts.images.found.keys() >= set(asked.images):
        if facts.images.found.keys() | facts.images.pending >= set(asked.images):
            _mark_pending(pod, draft, gate=found.value == "gate" and facts.images.may_gate)
        return ()
    common = common_architectures(pod, facts.images)
    if common is None:
        return ()
    if not common:
        draft.warnings.append(_IMAGES_HAVE_NO_COMMON_ARCHITECTURE)
        return ()
    if common >= ARCHITECTURES:
        return ()
    values = tuple(sorted(common))
    draft.note(IMAGE_STAMP, ",".join(values), found, _STAMPED_FOR_IMAGES)
    return values


def common_architectures(pod: Pod, images: Images) -> frozenset[str] | None:
    """The architectures that every image of a pod was built for, for its operating system; None where one is unknown, or not for that system at all."""
    os = _own_os(pod) or _LINUX
    common: frozenset[str] | None = None
    for container in _containers(pod):
        platforms = images.found.get(container.image)
        theirs = frozenset(architecture for theirs, architecture in platforms or () if theirs == os)
        if _I386 in theirs:
            theirs |= {_AMD64}
        if not theirs:
            return None
        common = theirs if common is None else common & theirs
    return common


def _mark_pending(pod: Pod, draft: _Draft, *, gate: bool) -> None:
    """The label by which the pod is found again, and the gate that holds it until then."""
    draft.labels[names.IMAGE_ARCH_PENDING] = "true"
    gates = pod.spec.scheduling_gates
    if gate and not any(one.name == names.IMAGE_ARCH_GATE for one in gates):
        values = [{"name": names.IMAGE_ARCH_GATE}]
        _append(gates, ("spec", "schedulingGates"), values, draft)


def settle(pod: Pod, facts: StampFacts, *, late: bool) -> StampDecision | None:
    """What becomes of a pod that was marked because its images were unknown; None while it is to wait.

    A gated pod gets the requirement and loses the gate; one that is not gets an annotation, since the API server allows no other affinity any more: the
    provisioner plans by it. Where an image will not be known, or is not known in time, only mark and gate go.

    Args:
        pod: as it is.
        facts: with `images`.
        late: it has waited long enough for its gate.
    """
    settings, draft = _Settings(pod, facts), _Draft()
    found, asked = _image_setting(settings), images_of(pod, facts)
    gated = next((at for at, one in enumerate(pod.spec.scheduling_gates) if one.name == names.IMAGE_ARCH_GATE), None)
    common: frozenset[str] | None = None
    if found is not None and asked is not None and facts.images is not None:
        waits = set(asked.images) - facts.images.found.keys()
        if waits and waits <= facts.images.pending:
            if gated is None or not late:
                return None
            draft.operations.extend(_ungated(gated))  # what is found later is annotated
            return StampDecision(StampOutcome.STAMPED, tuple(draft.operations))
        common = None if waits else common_architectures(pod, facts.images)
        if common is not None and not common:
            draft.warnings.append(_IMAGES_HAVE_NO_COMMON_ARCHITECTURE)
    if pod.metadata.labels.get(names.IMAGE_ARCH_PENDING) is not None:
        draft.operations.append(podpatch.remove("metadata", "labels", names.IMAGE_ARCH_PENDING))
    if common and found is not None and not common >= ARCHITECTURES:
        values = tuple(sorted(common))
        if gated is not None:
            draft.operations.extend(_affinity_operations(pod, {names.ARCH_LABEL: values}))
            draft.note(IMAGE_STAMP, ",".join(values), found, _STAMPED_FOR_IMAGES)
            _record(pod, draft)
        else:
            found_out = {names.IMAGE_ARCHITECTURES: ",".join(values)}
            if _fits({**pod.metadata.annotations, **found_out}):  # or the API server would refuse the whole patch
                draft.operations.extend(_entered(pod.metadata.annotations, "annotations", found_out))
    if gated is not None:
        draft.operations.extend(_ungated(gated))
    return StampDecision(
        StampOutcome.STAMPED, tuple(draft.operations), tuple(sorted(draft.stamped)), tuple(draft.warnings)
    )


def _ungated(at: int) -> Iterator[Operation]:
    yield podpatch.test("spec", "schedulingGates", at, "name", value=names.IMAGE_ARCH_GATE)
    yield podpatch.remove("spec", "schedulingGates", at)


# --- the share on demand --------------------------------------------------------------------------------------------


def _controller_of(pod: Pod) -> OwnerReference | None:
    """The controller of the pod, if it makes pods that are alike."""
    for owner in pod.metadata.owner_references:
        group = owner.api_version.partition("/")[0]
        if owner.controller is True and owner.uid and (owner.kind, group) in _SHARING:
            return owner
    return None


def _speaks_of_capacity(pod: Pod, settings: _Settings) -> bool:
    """Whether something nearer decides on the capacity type: the pod's own spec, or the setting for all pods."""
    label = names.CAPACITY_TYPE_LABEL
    terms = _required_terms(pod)
    wish = settings.find(names.STAMP_CAPACITY_TYPE)
    return (
        _selects(pod, label)
        or (terms is not None and not any(_missing(term, label, ("",)) for term in terms))
        or (wish is not None and bool(wish.value))
    )


@dataclass(frozen=True)
class _AskedShare:
    """A share that is asked for, of a pod that was not given its side before.

    Attributes:
        found: where it is asked for.
        controller: of the pod; None where it has none that makes pods that are alike.
        owner: whose pods are counted; of nobody without a controller.
        share: what is asked for; without meaning where there is a problem.
        problem: why it cannot be applied to the pod; "" where it can.
    """

    found: _Found
    controller: OwnerReference | None
    owner: ShareOwner
    share: Share
    problem: str


def _asked_share(pod: Pod, settings: _Settings, facts: StampFacts) -> _AskedShare | None:
    found = settings.find(names.STAMP_ON_DEMAND)
    if found is None or not found.value:
        return None
    controller, problem, share = _controller_of(pod), "", Share()
    owner = ShareOwner(facts.namespace, "" if controller is None else controller.uid)
    given = pod.metadata.annotations.get(names.ON_DEMAND_TICKET, "")
    if controller is not None and shares.gave(owner.uid, given):
        return None  # the API server asks again after another webhook changed the pod
    try:
        share = shares.parse(found.value)
    except ValueError as error:
        problem = str(error)
    else:
        if controller is None:
            problem = Said("no ReplicaSet, StatefulSet or Job controls the pod")
        elif _speaks_of_capacity(pod, settings):
            problem = Said("karpenter.sh/capacity-type is set for the pod already")
    return _AskedShare(found, controller, owner, share, problem)


def _share_not_applied(setting: str, problem: str) -> str:
    """A warning about a share of pods on demand."""
    return Said(f"dovetail: {setting}: {problem}. The share was not applied")


def _seated(pod: Pod, settings: _Settings, facts: StampFacts, draft: _Draft) -> Seat | None:
    """What the pod is for, where a share says so; its label and annotations are drafted."""
    asked = _asked_share(pod, settings, facts)
    if asked is None:
        return None
    found, controller = asked.found, asked.controller
    if asked.problem or facts.seat is None or controller is None:
        draft.warnings.append(
            _share_not_applied(
                str(found), asked.problem or Said("the webhook is not counting pods (--on-demand-shares)")
            )
        )
        return None
    seat = facts.seat
    draft.labels[names.ON_DEMAND_SHARE_LABEL] = seat.side.value
    draft.annotations[names.ON_DEMAND_TICKET] = asked.owner.ticket(seat, facts.review)
    if controller.kind == "ReplicaSet" and names.POD_DELETION_COST not in pod.metadata.annotations:
        draft.annotations[names.POD_DELETION_COST] = str(-seat.rank)  # the least goes first when it is scaled down
    draft.note(SHARE_STAMP, seat.side.value, found, f"{asked.share} on demand")
    _warn_of_repair(pod, controller, draft)
    return seat


def _repair(value: str) -> str:
    return Said(f"annotation dovetail.dev/on-demand-repair of the pod: {value!r}")


def _warn_of_repair(pod: Pod, controller: OwnerReference, draft: _Draft) -> None:
    """Tell what the provisioner will not do."""
    wanted = pod.metadata.annotations.get(names.ON_DEMAND_REPAIR)
    if wanted is None:
        return
    if wanted != shares.REPAIR_BY_EVICTION:
        draft.warnings.append(f"dovetail: {_repair(wanted)} is not supported; use {shares.REPAIR_BY_EVICTION}")
    elif controller.kind == "Job":
        draft.warnings.append(
            f"dovetail: {_repair(wanted)} has no effect on pods of Jobs, which are never evicted for it"
        )
    elif names.STAMP_ON_DEMAND not in pod.metadata.annotations:
        draft.warnings.append(
            f"dovetail: {_repair(wanted)} requires the annotation dovetail.dev/on-demand of the pod as well"
        )


def _warn_of_gang(pod: Pod, draft: _Draft) -> None:
    """Tell what the provisioner will not take together."""
    notes = pod.metadata.annotations
    by_job = any(one.controller and is_job(one) for one in pod.metadata.owner_references)
    if error := gang_error(*map(notes.get, (names.GANG, names.GANG_LABEL, names.GANG_MINIMUM)), of_job=by_job):
        draft.warnings.append(f"dovetail: {error}. The pod is planned on its own")


def _prefer_spot(pod: Pod, required: bool) -> Operation:
    """The preference, into an affinity that may just have been made for requirements."""
    affinity = pod.spec.affinity
    term = {"matchExpressions": [_expression(names.CAPACITY_TYPE_LABEL, (names.CAPACITY_SPOT,))]}
    preference = {"weight": _SPOT_WEIGHT, "preference": term}
    if affinity is not None and affinity.node_affinity is not None and affinity.node_affinity.preferred:
        return podpatch.add("spec", "affinity", "nodeAffinity", PREFERRED, "-", value=preference)
    if required:
        return podpatch.add("spec", "affinity", "nodeAffinity", PREFERRED, value=[preference])
    return _into_node_affinity(pod, PREFERRED, [preference])


# --- tolerations, spread, disruption --------------------------------------------------------------------------------


def _tolerate(pod: Pod, pools: tuple[str, ...], found: _Found, facts: StampFacts, draft: _Draft) -> None:
    """Tolerations of what keeps pods off the NodePools that this pod is for; their start-up taints fall by themselves."""
    if facts.taints_of is None:
        return
    tolerated = list(pod.spec.tolerations)
    missing: list[Taint] = []
    for pool in pools:
        taints = facts.taints_of(pool)
        if taints is None:
            draft.warnings.append(
                f"dovetail: {found}; NodePool {pool} does not exist, so no toleration was added for it"
            )
        for taint in taints or ():
            if taint.effect in (names.NO_SCHEDULE, names.NO_EXECUTE) and not tolerates(tolerated, taint):
                tolerated.append(Toleration(key=taint.key, value=taint.value, effect=taint.effect))
                missing.append(taint)
    if not missing:
        return
    if len(missing) > MAX_TOLERATIONS:
        draft.warnings.append(
            f"dovetail: {found}: the NodePools have {len(missing)} taints, more than the limit of "
            f"{MAX_TOLERATIONS}. No toleration was added"
        )
        return
    _append(pod.spec.tolerations, ("spec", "tolerations"), [_toleration(taint) for taint in missing], draft)
    draft.note(TOLERATIONS_STAMP, ",".join(map(str, missing)), found, f"taints of NodePool {','.join(pools)}")


def _toleration(taint: Taint) -> dict[str, str]:
    value = {"value": taint.value} if taint.value else {}
    return {"key": taint.key, "operator": "Equal", **value, "effect": taint.effect}


def _spread(pod: Pod, settings: _Settings, draft: _Draft) -> None:
    """A preference only: it may never keep a pod pending, nor buy a node."""
    found = settings.find(names.STAMP_SPREAD)
    if found is None or not found.value:
        return
    if found.value != "zone":
        draft.warnings.append(f"dovetail: {found} is not supported; use zone. No topology spread constraint was added")
        return
    constraints = pod.spec.topology_spread_constraints
    if any(renamed_label(one.topology_key) == names.ZONE_LABEL for one in constraints):
        return
    labels = {key: value for key, value in pod.metadata.labels.items() if key not in NOT_OF_BROTHERS}
    if not labels:
        draft.warnings.append(
            f"dovetail: {found} requires a label that the replicas of the pod share. No topology spread constraint "
            "was added"
        )
        return
    constraint = {
        "maxSkew": 1,
        "topologyKey": names.ZONE_LABEL,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(sorted(labels.items()))},
    }
    _append(constraints, ("spec", "topologySpreadConstraints"), [constraint], draft)
    draft.note(SPREAD_STAMP, "zone", found)


def _protect_job(pod: Pod, settings: _Settings, draft: _Draft) -> None:
    found = settings.enabled(names.STAMP_PROTECT_JOBS, draft, PROTECT_STAMP)
    job = _job_of(pod)
    if found is None or not job:
        return
    if names.DO_NOT_DISRUPT in pod.metadata.annotations or names.DO_NOT_DISRUPT in draft.annotations:
        return
    draft.annotations[names.DO_NOT_DISRUPT] = "true"
    draft.note(PROTECT_STAMP, "true", found, f"pod of Job {job}")


def _job_of(pod: Pod) -> str:
    """The name of the Job that controls the pod, "" for none."""
    for owner in pod.metadata.owner_references:
        if owner.controller is True and owner.kind == "Job" and owner.api_version.startswith("batch/"):
            return owner.name
    return ""


def _append(present: Sequence[object], path: tuple[str, ...], values: list[Any], draft: _Draft) -> None:
    """Put values at the end of a list that may not be there."""
    if not present:
        draft.operations.append(podpatch.add(*path, value=values))
    else:
        draft.operations.extend(podpatch.add(*path, "-", value=value) for value in values)


# --- the scheduler --------------------------------------------------------------------------------------------------


def _choose_scheduler(pod: Pod, settings: _Settings, facts: StampFacts, draft: _Draft) -> None:
    found = settings.enabled(names.STAMP_SCHEDULER, draft, SCHEDULER_STAMP)
    if found is None:
        return
    if (
        pod.spec.scheduler_name not in ("", names.DEFAULT_SCHEDULER_NAME)
        or facts.scheduler_name == names.DEFAULT_SCHEDULER_NAME
    ):
        return
    if not facts.scheduler_alive:
        draft.scheduler_held_back = True  # nobody would bind the pod; the default scheduler will
        return
    draft.operations.append(podpatch.add("spec", "schedulerName", value=facts.scheduler_name))
    draft.note(SCHEDULER_STAMP, facts.scheduler_name, found)


# --- deprecated labels ----------------------------------------------------------------------------------------------

_VALUE_CHANGES = {
    # EKS managed node groups spell the capacity type in their own way.
    "eks.amazonaws.com/capacityType": {"SPOT": "spot", "ON_DEMAND": "on-demand"},
}
_RENAMED_LABELS = {
    "karpenter.sh/provisioner-name": names.NODEPOOL_LABEL,
    "eks.amazonaws.com/capacityType": names.CAPACITY_TYPE_LABEL,
}
_DISRUPTION_ANNOTATIONS = {
    names.DO_NOT_EVICT: "true",
    names.DO_NOT_CONSOLIDATE: "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
}
"""Annotations of a pod, with the value that means do-not-disrupt. They stay: other programs may read them."""


DEPRECATED_LABELS = frozenset({*names.LABEL_ALIASES, *_RENAMED_LABELS}) - {names.EBS_ZONE_LABEL}
"""Node labels that have a newer name."""


def renamed_label(key: str) -> str:
    """The present name of a node label; the key itself where it is not deprecated."""
    if key == names.EBS_ZONE_LABEL:  # another name for the zone, and no deprecated one
        return key
    return _RENAMED_LABELS.get(key) or names.normalized_label(key)


def _new_value(key: str, value: str) -> str:
    return _VALUE_CHANGES.get(key, {}).get(value, value)


def _rewrite_legacy(pod: Pod, settings: _Settings, draft: _Draft) -> None:
    found = settings.find(names.STAMP_LEGACY_LABELS)
    if found is None or found.value in ("", "keep"):
        return
    if found.value != "rewrite":
        draft.warnings.append(f"dovetail: {found} is not supported; use rewrite or keep. No label was rewritten")
        return
    renamed: dict[str, str] = {}
    rewriting = itertools.chain(
        _rewrite_node_selector(pod, renamed, draft),
        _rewrite_affinity(pod, renamed),
        _rewrite_topology_keys(pod, renamed, draft),
    )
    operations = list(itertools.islice(rewriting, MAX_OPERATIONS + 1))
    if len(operations) > MAX_OPERATIONS:
        draft.warnings.append(
            f"dovetail: the pod uses deprecated labels in more than {MAX_OPERATIONS} places. No label was rewritten; "
            "replace them in the pod"
        )
        return
    annotations = pod.metadata.annotations
    for key, meaning in _DISRUPTION_ANNOTATIONS.items():
        if annotations.get(key) == meaning and names.DO_NOT_DISRUPT not in annotations:
            draft.annotations[names.DO_NOT_DISRUPT] = "true"
            renamed[key] = names.DO_NOT_DISRUPT
            break
    if renamed:
        draft.operations.extend(operations)
        draft.note(LEGACY_STAMP, "rewrite", found, ", ".join(sorted(renamed)))
    for old, new in sorted(renamed.items()):
        draft.warnings.append(f"dovetail: {old} is deprecated, use {new}")


def _rewrite_node_selector(pod: Pod, renamed: dict[str, str], draft: _Draft) -> Iterator[Operation]:
    selector = dict(pod.spec.node_selector)
    for old in sorted(selector):
        new = renamed_label(old)
        if new == old:
            continue
        value = _new_value(old, selector[old])
        if selector.get(new, value) != value:
            draft.warnings.append(
                f"dovetail: nodeSelector asks for {old}={selector[old]} and {new}={selector[new]}: the values "
                f"contradict each other, so {old} was not changed"
            )
            continue
        if new not in selector:
            selector[new] = value  # two deprecated names of one label are checked against each other too
            yield podpatch.add("spec", "nodeSelector", new, value=value)
        yield podpatch.remove("spec", "nodeSelector", old)
        renamed[old] = new


def _rewrite_affinity(pod: Pod, renamed: dict[str, str]) -> Iterator[Operation]:
    if pod.spec.affinity is None or pod.spec.affinity.node_affinity is None:
        return
    for path, term in _terms(pod.spec.affinity.node_affinity):
        for index, expression in enumerate(term.match_expressions):
            new = renamed_label(expression.key)
            if new == expression.key:
                continue
            at = (*path, "matchExpressions", index)
            yield podpatch.replace(*at, "key", value=new)
            for place, value in enumerate(expression.values):
                if (changed := _new_value(expression.key, value)) != value:
                    yield podpatch.replace(*at, "values", place, value=changed)
            renamed[expression.key] = new


def _rewrite_topology_keys(pod: Pod, renamed: dict[str, str], draft: _Draft) -> Iterator[Operation]:
    constraints = pod.spec.topology_spread_constraints
    taken = {(one.topology_key, one.when_unsatisfiable) for one in constraints}
    for index, one in enumerate(constraints):
        new = renamed_label(one.topology_key)
        if new == one.topology_key:
            continue
        if (new, one.when_unsatisfiable) in taken:  # the API server refuses a second one
            draft.warnings.append(
                f"dovetail: topologySpreadConstraints contains both {one.topology_key} and {new}, so "
                f"{one.topology_key} was not changed"
            )
            continue
        taken.add((new, one.when_unsatisfiable))
        yield podpatch.replace("spec", "topologySpreadConstraints", index, "topologyKey", value=new)
        renamed[one.topology_key] = new
    affinity = pod.spec.affinity
    if affinity is None:
        return
    for name, group in (("podAffinity", affinity.pod_affinity), ("podAntiAffinity", affinity.pod_anti_affinity)):
        if group is None:
            continue
        root = ("spec", "affinity", name)
        keys: list[tuple[tuple[str | int, ...], str]] = [
            *(((*root, REQUIRED, at), term.topology_key) for at, term in enumerate(group.required)),
            *(
                ((*root, PREFERRED, at, "podAffinityTerm"), term.pod_affinity_term.topology_key)
                for at, term in enumerate(group.preferred)
            ),
        ]
        for path, old in keys:
            if (new := renamed_label(old)) != old:
                yield podpatch.replace(*path, "topologyKey", value=new)
                renamed[old] = new


def _terms(affinity: NodeAffinity) -> Iterator[tuple[tuple[str | int, ...], NodeSelectorTerm]]:
    root = ("spec", "affinity", "nodeAffinity")
    if affinity.required is not None:
        for index, term in enumerate(affinity.required.node_selector_terms):
            yield (*root, REQUIRED, "nodeSelectorTerms", index), term
    for index, preferred in enumerate(affinity.preferred):
        yield (*root, PREFERRED, index, "preference"), preferred.preference


def _entered(present: Mapping[str, str], name: str, wanted: Mapping[str, str]) -> Iterator[Operation]:
    """Entries of the pod's labels or annotations; all at once where it has none: a second addition of the whole map would take the first one away."""
    if wanted and not present:
        yield podpatch.add("metadata", name, value=wanted)
    else:
        yield from (
            podpatch.add("metadata", name, key, value=one) for key, one in wanted.items() if present.get(key) != one
        )


# --- the record -----------------------------------------------------------------------------------------------------


def _fits(annotations: Mapping[str, str]) -> bool:
    return sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) <= MAX_ANNOTATION_BYTES


def recorded(annotations: Mapping[str, str]) -> dict[str, str]:
    """What the record of a pod says already, by stamp; words that are not ours are left out."""
    record = annotations.get(names.STAMPED_ANNOTATION, "")
    return {
        stamp: part
        for part in record[:LONGEST_RECORD].split("; ")
        if _ENTRY.fullmatch(part) and (stamp := part.partition("=")[0]) in STAMPS
    }


def _record(pod: Pod, draft: _Draft) -> bool:
    """Write the annotations: what was stamped before stays in the record, words that are not ours do not.

    False where the API server would refuse the pod for their size.
    """
    annotations = pod.metadata.annotations
    entries = recorded(annotations) | draft.stamped
    wanted = {**draft.annotations, names.STAMPED_ANNOTATION: "; ".join(entry for _, entry in sorted(entries.items()))}
    if not _fits({**annotations, **wanted}):
        return False
    draft.operations.extend(_entered(annotations, "annotations", wanted))
    return True
