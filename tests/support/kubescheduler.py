"""kube-scheduler 1.36's filters once more, with dicts and loops: may this pod be bound to that node now?

Nothing here knows how the solver works; it knows pods, nodes and volumes, and reads labels, selectors and taints by
itself. A `World` is a cluster at one moment; a pod is judged against it as it stands and, once placed, becomes part of it.
"""

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from provisioner.apis import names
from provisioner.apis.core import (
    ContainerPort,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PodAffinityTerm,
    StorageClass,
    TopologySpreadConstraint,
)
from provisioner.apis.meta import LabelSelector, LabelSelectorRequirement
from provisioner.apis.names import LABEL_ALIASES
from provisioner.apis.pods import Pod, PodShape
from provisioner.values.taints import Taint, Toleration

Labels = Mapping[str, str]
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
ZONE_KEYS = (
    "topology.kubernetes.io/zone",
    "topology.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region",
)


# --- taints, labels, selectors ---


def tolerated(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Whether `taint` lets the pod in; one that is only a wish always does."""
    if taint.effect == "PreferNoSchedule":
        return True
    for one in tolerations:
        if one.effect not in {"", taint.effect}:
            continue
        if one.operator == "Exists":
            if one.key in {"", taint.key}:
                return True
        elif one.key != taint.key:
            continue
        elif one.operator in {"Lt", "Gt"}:
            try:
                left, right = int(taint.value), int(one.value)
            except ValueError:
                continue
            if left < right if one.operator == "Lt" else left > right:
                return True
        elif one.value == taint.value:
            return True
    return False


def label(labels: Labels, key: str) -> str | None:
    """The value of a label, whichever of its names old or new a node carries."""
    stable = LABEL_ALIASES.get(key, key)
    if stable in labels:
        return labels[stable]
    for alias, meant in LABEL_ALIASES.items():
        if meant == stable and alias in labels:
            return labels[alias]
    return None


def expression_holds(expression: NodeSelectorRequirement, value: str | None) -> bool:
    match expression.operator:
        case "In":
            return value is not None and value in expression.values
        case "NotIn":
            return value is None or value not in expression.values
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            try:
                number, bound = int(value or ""), int(expression.values[0])
            except ValueError:
                return False
            return number > bound if expression.operator == "Gt" else number < bound
        case _:
            return False  # kube-scheduler reads no such term


def term_matches(term: NodeSelectorTerm, labels: Labels, node_name: str) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False
    return all(expression_holds(one, label(labels, one.key)) for one in term.match_expressions) and all(
        one.key == "metadata.name" and expression_holds(one, node_name) for one in term.match_fields
    )


def filter_matches(shape: PodShape, labels: Labels, node_name: str) -> bool:
    """nodeSelector and required node affinity."""
    for key, value in shape.node_selector.items():
        if label(labels, key) != value:
            return False
    node_affinity = None if shape.affinity is None else shape.affinity.node_affinity
    if node_affinity is None or node_affinity.required is None:
        return True
    return any(term_matches(one, labels, node_name) for one in node_affinity.required.node_selector_terms)


def admits(shape: PodShape, labels: Labels, taints: Iterable[Taint], node_name: str = "") -> bool:
    return all(tolerated(shape.tolerations, taint) for taint in taints) and filter_matches(shape, labels, node_name)


def selected(selector: LabelSelector | None, labels: Labels) -> bool:
    """An absent selector matches nothing, an empty one everything."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    for one in selector.match_expressions:
        own = labels.get(one.key)
        holds = {
            "In": own is not None and own in one.values,
            "NotIn": own is None or own not in one.values,
            "Exists": own is not None,
            "DoesNotExist": own is None,
        }.get(one.operator, False)
        if not holds:
            return False
    return True


def _with_keys(
    selector: LabelSelector | None, labels: Labels, keys: Iterable[str], apart: Iterable[str] = ()
) -> LabelSelector | None:
    """matchLabelKeys and mismatchLabelKeys, written out."""
    if selector is None:
        return None
    more = [LabelSelectorRequirement(key=key, operator="In", values=(labels[key],)) for key in keys if key in labels]
    more += [
        LabelSelectorRequirement(key=key, operator="NotIn", values=(labels[key],)) for key in apart if key in labels
    ]
    return LabelSelector(match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *more))


# --- resources and ports ---


def needs(shapes: Iterable[PodShape]) -> dict[str, int]:
    total: dict[str, int] = {}
    for shape in shapes:
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


def fits(wanted: Mapping[str, int], room: Mapping[str, int]) -> bool:
    return all(amount <= 0 or amount <= room.get(name, 0) for name, amount in wanted.items())


def ports_conflict(left: ContainerPort, right: ContainerPort) -> bool:
    if (left.host_port, left.protocol or "TCP") != (right.host_port, right.protocol or "TCP"):
        return False
    ours, theirs = left.host_ip or "0.0.0.0", right.host_ip or "0.0.0.0"
    return ours == theirs or "0.0.0.0" in {ours, theirs}


# --- the cluster at one moment ---


@dataclass
class NodeInfo:
    """A node, or one to come.

    Attributes:
        room: what more pods may use, before any pod of `placed`.
        daemons: what will run on a node to come, for its ports; their requests are taken off `room` already.
        pods: were here before; `room` is what they leave.
        attach: volumes by CSI driver that the node takes; absent means any number.
        features: that its kubelet declares; None where it has said nothing yet.
        overflowing: a node to come on which not even the daemons fit.
        nameless: its Node lost the hostname label, as one that is drained: it is no host for anybody's spread.
        placed: pods that this result puts here.
        late: pods of DaemonSets that must be near others, and come once these are there.
    """

    name: str
    labels: dict[str, str]
    room: dict[str, int]
    taints: tuple[Taint, ...] = ()
    node_name: str = ""
    daemons: tuple[PodShape, ...] = ()
    pods: tuple[Pod, ...] = ()
    attach: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] | None = None
    leaving: bool = False
    closed: bool = False
    overflowing: bool = False
    nameless: bool = False
    placed: list[Pod] = field(default_factory=list)
    late: tuple[Pod, ...] = ()

    def everyone(self) -> Iterator[Pod]:
        yield from self.pods
        yield from self.placed


@dataclass
class World:
    """Nodes with their pods, and what pods may refer to.

    Attributes:
        spread: the topology spread constraints of a pod that has none, selectors deduced already, by UID.
        more_domains: nodes that could be made: `strict` judgement counts their domains as empty ones, for pods that fit
            on them.
        strict: always judge so.
        ignore_devices: DRA claims are no constraint.
    """

    nodes: list[NodeInfo]
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    claims: Mapping[str, PersistentVolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, PersistentVolume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    spread: Mapping[str, tuple[TopologySpreadConstraint, ...]] = field(default_factory=dict)
    more_domains: tuple[NodeInfo, ...] = ()
    ignore_devices: bool = False
    strict: bool = False

    def copy(self) -> "World":
        """The same, with pods that can be placed apart."""
        other = copy.copy(self)
        other.nodes = [copy.copy(one) for one in self.nodes]
        for one in other.nodes:
            one.placed = list(one.placed)
        return other

    def node(self, name: str) -> NodeInfo:
        return next(one for one in self.nodes if one.name == name)

    # --- one pod, one node ---

    def refusal(self, pod: Pod, node: NodeInfo, *, strict: bool = False) -> str:
        """The first filter that refuses the pod there; "" where kube-scheduler would bind it.

        Args:
            pod: not yet part of this world.
            node: of this world.
            strict: domains where nodes could be made count for the spread as well.
        """
        return self.misfit(pod, node) or self.topology(pod, node, strict=strict)

    def misfit(self, pod: Pod, node: NodeInfo) -> str:
        """What has to do with this pod and this node alone."""
        shape = pod.shape
        if shape.error or pod.gated or any(amount < 0 for amount in shape.requests.values()):
            return "cannot be scheduled at all"
        if shape.resource_claims and not self.ignore_devices:
            return "has resource claims"
        if node.features is not None and not set(shape.features) <= node.features:
            return "needs a feature that the node does not declare"
        if node.leaving:
            return "node is leaving"
        if node.closed:
            return "node takes nothing now"
        if node.overflowing:
            return "daemons alone overflow it"
        for taint in node.taints:
            if not tolerated(shape.tolerations, taint):
                return f"taint {taint}"
        if not filter_matches(shape, node.labels, node.node_name):
            return "node affinity or selector"
        if not fits(needs([*(one.shape for one in node.placed), shape]), node.room):
            return "resources"
        taken = [port for one in node.everyone() for port in one.shape.host_ports]
        taken += [port for one in node.daemons for port in one.host_ports]
        for port in shape.host_ports:
            if any(ports_conflict(port, other) for other in taken):
                return f"host port {port.host_port}"
        return self._volumes(pod, node)

    def topology(self, pod: Pod, node: NodeInfo, *, strict: bool = False) -> str:
        """What has to do with pods elsewhere."""
        return self._spread(pod, node, strict=strict) or self._affinity(pod, node)

    # --- volumes ---

    def claim_keys(self, pod: Pod) -> Iterator[tuple[str, bool]]:
        """(namespace/name of a claim, whether it is an ephemeral volume's)."""
        for volume in pod.shape.volumes:
            if volume.persistent_volume_claim is not None:
                yield f"{pod.namespace}/{volume.persistent_volume_claim.claim_name}", False
            elif volume.ephemeral is not None:
                yield f"{pod.namespace}/{pod.name}-{volume.name}", True

    def _volumes(self, pod: Pod, node: NodeInfo) -> str:
        chosen: list[str] = []
        for key, ephemeral in self.claim_keys(pod):
            why = self._claim(key, node, chosen)
            if why:
                return why
            owners = self.claims[key].metadata.owner_references
            if ephemeral and not any(one.controller and one.uid == pod.uid for one in owners):
                return f"volume claim {key} was not made for this pod"
        for key, _ in self.claim_keys(pod):
            if "ReadWriteOncePod" in self.claims[key].spec.access_modes:
                users = (one for other in self.nodes for one in other.everyone())
                if any(key in dict(self.claim_keys(one)) for one in users):
                    return f"volume {key} is for one pod only"
        return self._attach(pod, node)

    def _claim(self, key: str, node: NodeInfo, chosen: list[str]) -> str:
        claim = self.claims.get(key)
        if claim is None:
            return f"volume claim {key} does not exist"
        if claim.metadata.deletion_timestamp is not None:
            return f"volume claim {key} is being deleted"
        if claim.status.phase == "Lost":
            return f"volume claim {key} is lost"
        if claim.spec.volume_name:
            volume = self.volumes.get(claim.spec.volume_name)
            if BIND_COMPLETED not in claim.metadata.annotations or volume is None:
                return f"volume claim {key} is not bound"
            return self._reach(volume, node)
        kind = self.classes.get(claim.spec.storage_class_name or "")
        if kind is None:
            return f"volume claim {key} has no storage class"
        if kind.volume_binding_mode != "WaitForFirstConsumer":
            return f"volume claim {key} waits for immediate binding"
        if claim.metadata.annotations.get(names.SELECTED_NODE, node.node_name) != node.node_name:
            return f"the volume of claim {key} is being made for another node"
        if kind.provisioner == "kubernetes.io/no-provisioner":
            given = self._given()
            if key in given:
                return self._reach(self.volumes[given[key]], node)
            name = self._match(claim, node, [*given.values(), *chosen])
            chosen.append(name)
            return "" if name else f"no volume for {key} here"
        users = (other for other in self.nodes for one in other.everyone() if key in dict(self.claim_keys(one)))
        zones = {node_label(other, names.ZONE_LABEL) for other in users} - {None}
        if zones and node_label(node, names.ZONE_LABEL) not in zones:
            return f"volume claim {key} gets its volume in another zone"
        if kind.allowed_topologies and not any(
            all(
                label(node.labels, one.key) in one.values and one.key in node.labels
                for one in term.match_label_expressions
            )
            for term in kind.allowed_topologies
        ):
            return f"storage class {kind.metadata.name} makes no volumes here"
        return ""

    def _match(self, claim: PersistentVolumeClaim, node: NodeInfo, given: Iterable[str]) -> str:
        """The volume that a claim would be bound to on that node; "" for none."""
        wanted, taken = claim.spec, set(given)
        key = (claim.metadata.namespace, claim.metadata.name)
        free = []
        for name, one in self.volumes.items():
            reference = one.spec.claim_ref
            if name in taken or _bytes(one.spec.capacity) < _bytes(wanted.resources.requests):
                continue
            if (one.spec.volume_mode or "Filesystem") != (wanted.volume_mode or "Filesystem"):
                continue
            if reference is not None:
                if (reference.namespace, reference.name) == key and not self._reach(one, node):
                    return name
                continue
            if one.status.phase not in {"", "Available"} or one.spec.storage_class_name != wanted.storage_class_name:
                continue
            if not set(wanted.access_modes) <= set(one.spec.access_modes):
                continue
            if wanted.selector is not None and not selected(wanted.selector, one.metadata.labels):
                continue
            if not self._reach(one, node):
                free.append(name)
        return min(free, key=lambda name: (_bytes(self.volumes[name].spec.capacity), name), default="")

    def _given(self) -> dict[str, str]:
        """By claim, the volume without a provisioner that it has got by the pods that were placed so far."""
        given: dict[str, str] = {}
        for node in self.nodes:
            for pod in node.placed:
                for key, _ in self.claim_keys(pod):
                    claim = self.claims.get(key)
                    kind = None if claim is None else self.classes.get(claim.spec.storage_class_name or "")
                    if claim is None or key in given or claim.spec.volume_name or kind is None:
                        continue
                    if kind.provisioner == "kubernetes.io/no-provisioner":
                        name = self._match(claim, node, given.values())
                        if name:
                            given[key] = name
        return given

    def _reach(self, volume: PersistentVolume, node: NodeInfo) -> str:
        affinity = volume.spec.node_affinity
        if affinity is not None and affinity.required is not None:
            terms = affinity.required.node_selector_terms
            local = volume.spec.local is not None or volume.spec.host_path is not None
            if not any(
                term_matches(term, node.labels, node.node_name) or (local and self._without_hostname(term, node))
                for term in terms
            ):
                return f"volume {volume.metadata.name} cannot be reached"
        zoned = [key for key in ZONE_KEYS if key in volume.metadata.labels]
        if any(key in node.labels for key in ZONE_KEYS):
            for key in zoned:
                if label(node.labels, key) not in volume.metadata.labels[key].split("__"):
                    return f"volume {volume.metadata.name} is in another zone"
        return ""

    def _without_hostname(self, term: NodeSelectorTerm, node: NodeInfo) -> bool:
        """Karpenter's rule, for nodes to come only: a local volume's node may be gone, the rest of its term counts."""
        if node.node_name:
            return False
        rest = [one for one in term.match_expressions if one.key != names.HOSTNAME_LABEL]
        return len(rest) < len(term.match_expressions) and all(
            expression_holds(one, label(node.labels, one.key)) for one in rest
        )

    def _attached(self, pod: Pod) -> Iterator[tuple[str, str]]:
        """(driver, volume) of every volume that would be attached."""
        for key, _ in self.claim_keys(pod):
            claim = self.claims.get(key)
            if claim is None:
                continue
            volume = self.volumes.get(claim.spec.volume_name)
            if claim.spec.volume_name and volume is not None:
                if volume.spec.csi is not None:
                    yield volume.spec.csi.driver, volume.spec.csi.volume_handle
                elif volume.spec.aws_elastic_block_store is not None:
                    yield "ebs.csi.aws.com", volume.spec.aws_elastic_block_store.volume_id
            elif not claim.spec.volume_name:
                kind = self.classes.get(claim.spec.storage_class_name or "")
                if kind is not None:
                    provisioner = {"kubernetes.io/aws-ebs": "ebs.csi.aws.com"}.get(kind.provisioner, kind.provisioner)
                    yield provisioner, key

    def _attach(self, pod: Pod, node: NodeInfo) -> str:
        wanted = set(self._attached(pod))
        held = {one for other in node.everyone() for one in self._attached(other)}
        for driver in {driver for driver, _ in wanted - held}:
            limit = node.attach.get(driver)
            if limit is not None and sum(1 for one, _ in wanted | held if one == driver) > limit:
                return f"too many volumes of {driver}"
        return ""

    # --- spread ---

    def hard_spread(self, pod: Pod) -> list[TopologySpreadConstraint]:
        constraints = pod.shape.spread or self.spread.get(pod.uid, ())
        return [one for one in constraints if one.when_unsatisfiable == "DoNotSchedule"]

    def _spread(self, pod: Pod, node: NodeInfo, *, strict: bool) -> str:
        constraints = self.hard_spread(pod)
        for constraint in constraints:
            selector = _with_keys(constraint.label_selector, pod.labels, constraint.match_label_keys)
            here = node_label(node, constraint.topology_key)
            if here is None:
                return f"spread: no label {constraint.topology_key}"
            counts: dict[str, int] = {}
            leaving: dict[str, int] = {}
            for other in self.nodes:
                values = [node_label(other, one.topology_key) for one in constraints]
                if None in values or not _counts(pod, constraint, other.labels, other.taints, other.node_name):
                    continue
                domain = node_label(other, constraint.topology_key) or ""
                found = sum(
                    1
                    for one in other.everyone()
                    if one.namespace == pod.namespace and one.deleted is None and selected(selector, one.labels)
                )
                if other.leaving:
                    leaving[domain] = leaving.get(domain, 0) + found
                else:
                    counts[domain] = counts.get(domain, 0) + found
            for domain, found in leaving.items():
                if domain in counts:
                    counts[domain] += found
            domains = dict(counts)
            if (strict or self.strict) and constraint.topology_key != names.HOSTNAME_LABEL:
                for could_be in self.more_domains:
                    value = could_be.labels.get(constraint.topology_key)
                    if value is not None and value not in domains and self._could_take(could_be, pod, constraint):
                        domains[value] = 0
            least = min(domains.values(), default=0)
            if len(counts) < (constraint.min_domains or 1):
                least = 0
            own = 1 if selected(selector, pod.labels) else 0
            if counts.get(here, 0) + own - least > constraint.max_skew:
                return f"spread over {constraint.topology_key}: {counts} with {here} next"
        return ""

    def _could_take(self, could_be: NodeInfo, pod: Pod, constraint: TopologySpreadConstraint) -> bool:
        """Whether a node that does not exist yet is one over which the pod spreads: it must be able to run there."""
        return (
            _counts(pod, constraint, could_be.labels, could_be.taints, could_be.node_name)
            and all(tolerated(pod.shape.tolerations, one) for one in could_be.taints)
            and not could_be.overflowing
            and fits(needs([pod.shape]), could_be.room)
        )

    # --- affinity between pods ---

    def _meant(self, owner: Pod, term: PodAffinityTerm, other: Pod) -> bool:
        """Whether a term of `owner` speaks of `other`."""
        if not term.namespaces and term.namespace_selector is None:
            if other.namespace != owner.namespace:
                return False
        elif other.namespace not in term.namespaces and not selected(
            term.namespace_selector, self.namespaces.get(other.namespace, {})
        ):
            return False
        selector = _with_keys(term.label_selector, owner.labels, term.match_label_keys, term.mismatch_label_keys)
        return selected(selector, other.labels)

    def _affinity(self, pod: Pod, node: NodeInfo) -> str:
        return self._apart(pod, node) or self._near(pod, node)

    def _apart(self, pod: Pod, node: NodeInfo) -> str:
        for other in self.nodes:
            for one in other.everyone():
                for term in anti_terms(one.shape):
                    if self._meant(one, term, pod) and _together(node, other, term.topology_key):
                        return f"{one.name} keeps it off by anti-affinity over {term.topology_key}"
        for term in anti_terms(pod.shape):
            for other in self.nodes:
                if _together(node, other, term.topology_key) and any(
                    self._meant(pod, term, one) for one in other.everyone()
                ):
                    return f"anti-affinity over {term.topology_key}"
        return ""

    def _near(self, pod: Pod, node: NodeInfo, *, welcome: bool = False) -> str:
        """`welcome`: those do not count that keep the pod off themselves."""
        terms = near_terms(pod.shape)
        if not terms:
            return ""
        if any(node_label(node, term.topology_key) is None for term in terms):
            return "affinity: label is missing"
        friends = [
            other
            for other in self.nodes
            for one in other.everyone()
            if all(self._meant(pod, term, one) for term in terms)
            and not (
                welcome
                and any(
                    self._meant(one, term, pod) and _together(node, other, term.topology_key)
                    for term in anti_terms(one.shape)
                )
            )
        ]
        if all(any(_together(node, other, term.topology_key) for other in friends) for term in terms):
            return ""
        nobody = not any(node_label(other, term.topology_key) is not None for other in friends for term in terms)
        if nobody and all(self._meant(pod, term, pod) for term in terms):
            return ""
        return f"affinity over {', '.join(term.topology_key for term in terms)}"

    # --- many pods ---

    def in_order(self, placements: Iterable[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
        """Bind all where they are put, in an order in which that works, and give it; who is missing in it cannot be bound.

        They become part of this world. Pods of higher priority come first, as in kube-scheduler's queue, where that works at all.
        """
        listed = list(placements)
        longest: list[tuple[Pod, str]] = []
        for key in _ORDERS:
            attempt = self.copy()
            order = attempt._bind(sorted(listed, key=key))
            if len(order) > len(longest) or not longest:
                longest = order
            if len(longest) == len(listed):
                break
        else:
            # of a few, the search looks at every order, so nothing else has to be tried
            searched = len(listed) << len(listed) <= _MOST_TRIES
            found = None if searched else self._patiently(listed) or self._peeled(listed)
            longest = found or self.copy()._search(listed, longest) or longest
        for pod, name in longest:
            self.node(name).placed.append(pod)
        return longest

    def _bind(self, waiting: list[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
        """Bind what can be bound, round by round, and give the order."""
        by_name = {one.name: one for one in self.nodes}
        order = []
        while waiting:
            left = []
            for pod, name in waiting:
                if self.refusal(pod, by_name[name]):
                    left.append((pod, name))
                else:
                    by_name[name].placed.append(pod)
                    order.append((pod, name))
            if len(left) == len(waiting):
                break
            waiting = left
        return order

    def _patiently(self, listed: list[tuple[Pod, str]]) -> list[tuple[Pod, str]] | None:
        """An order in which each turn is of the first that can be bound, those that look at others first; None for none."""
        for backwards in (False, True):
            attempt = self.copy()
            by_name = {one.name: one for one in attempt.nodes}
            waiting = sorted(listed, key=lambda one: one[0].uid, reverse=backwards)
            waiting.sort(key=lambda one: -_looks_at_others(one[0]))
            order = []
            while turn := next((one for one in waiting if not attempt.refusal(one[0], by_name[one[1]])), None):
                by_name[turn[1]].placed.append(turn[0])
                waiting.remove(turn)
                order.append(turn)
            if not waiting:
                return order
        return None

    def _peeled(self, listed: list[tuple[Pod, str]]) -> list[tuple[Pod, str]] | None:
        """An order found from its end: whoever could come last does, of those that are left, and so on; None for none.

        Those that look at nobody come last in every other turn; else the order is a fixed one without a pattern.
        """
        for turn in range(_MOST_TURNS):
            attempt = self.copy()
            by_name = {one.name: one for one in attempt.nodes}
            bound = sorted(listed, key=lambda one: one[0].uid)
            if turn:
                random.Random(turn).shuffle(bound)
            if not turn % 2:
                bound.sort(key=lambda one: _looks_at_others(one[0]) + len(anti_terms(one[0].shape)) > 0)
            for pod, name in bound:
                by_name[name].placed.append(pod)
            order = []
            while bound:
                for number, (pod, name) in enumerate(bound):
                    by_name[name].placed.remove(pod)
                    if not attempt.refusal(pod, by_name[name]):
                        order.append(bound.pop(number))
                        break
                    by_name[name].placed.append(pod)
                else:
                    break
            if not bound:
                return order[::-1]
        return None

    def _search(self, listed: list[tuple[Pod, str]], longest: list[tuple[Pod, str]]) -> list[tuple[Pod, str]] | None:
        """Another order, looked for from the start with those first that `longest` leaves over; None where none is found."""
        late = {pod.uid for pod, _ in listed} - {pod.uid for pod, _ in longest}
        pending = sorted(listed, key=lambda one: (one[0].uid not in late, -_looks_at_others(one[0]), one[0].uid))
        by_name = {one.name: one for one in self.nodes}
        dead: set[frozenset[str]] = set()
        tries = 0

        def extend(order: list[tuple[Pod, str]], done: frozenset[str]) -> bool:
            nonlocal tries
            if len(order) == len(listed):
                return True
            if done in dead or tries > _MOST_TRIES:
                return False
            for pod, name in pending:
                if pod.uid in done:
                    continue
                tries += 1
                if self.refusal(pod, by_name[name]):
                    continue
                by_name[name].placed.append(pod)
                order.append((pod, name))
                if extend(order, done | {pod.uid}):
                    return True
                order.pop()
                by_name[name].placed.remove(pod)
            dead.add(done)
            return False

        order: list[tuple[Pod, str]] = []
        return order if extend(order, frozenset()) else None

    def following(self, placements: Iterable[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
        """The pods of DaemonSets that come once these are where they are put; those that others keep out already stay out."""
        late = [(pod, node.name) for node in self.nodes for pod in node.late]
        if not late:
            return []
        world = self.copy()

        def come(*, welcome: bool) -> list[tuple[Pod, str]]:
            found: list[tuple[Pod, str]] = []
            more = True
            while more:
                more = False
                for pod, name in late:
                    node = world.node(name)
                    if pod in node.placed or world._near(pod, node, welcome=welcome):
                        continue
                    if (welcome and not found) or not world._apart(
                        pod, node
                    ):  # who follows these may be kept out by theirs
                        node.placed.append(pod)
                        found.append((pod, name))
                        more = True
            return found

        first = come(welcome=False)
        late = [(pod, name) for pod, name in late if world._near(pod, world.node(name))]
        for pod, name in placements:
            world.node(name).placed.append(pod)
        return first + come(welcome=True)

    def stuck(self, placements: Iterable[tuple[Pod, str]]) -> list[tuple[Pod, str]]:
        """Bind all, in whichever order works; what cannot be bound in any, with the reason."""
        listed = list(placements)
        listed += self.following(listed)
        bound = {pod.uid for pod, _ in self.in_order(listed)}
        return [(pod, self.refusal(pod, self.node(name))) for pod, name in listed if pod.uid not in bound]


def _bytes(amounts: Mapping[str, str | int | float]) -> int:
    units = {"Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
    text = str(amounts.get("storage", "0"))
    return int(text[:-2]) * units[text[-2:]] if text[-2:] in units else int(text)


def _looks_at_others(pod: Pod) -> int:
    return len(near_terms(pod.shape)) + sum(1 + (one.min_domains or 0) for one in pod.shape.spread)


_ORDERS: tuple[Callable[[tuple[Pod, str]], tuple[object, ...]], ...] = (
    lambda one: (-one[0].shape.priority, not near_terms(one[0].shape), -_looks_at_others(one[0]), one[0].uid),
    lambda one: (not near_terms(one[0].shape), -_looks_at_others(one[0]), one[0].uid),
    lambda one: (-one[0].shape.priority, _looks_at_others(one[0]), one[0].uid),
    lambda one: (-_looks_at_others(one[0]), one[0].uid),
    lambda one: (one[1], one[0].uid),
)
"""Orders in which binding is tried; within each, whoever can be bound is, round by round."""
_MOST_TRIES = 3000
"""Bindings tried in the search for an order, before it counts as impossible."""
_MOST_TURNS = 60
"""Orders that are looked for from their end."""


def node_label(node: NodeInfo, key: str) -> str | None:
    """A node's label; the hostname falls back to its name."""
    value = node.labels.get(key)
    if value is None and key == names.HOSTNAME_LABEL and not node.nameless:
        return node.node_name or node.name
    return value


def near_terms(shape: PodShape) -> tuple[PodAffinityTerm, ...]:
    affinity = None if shape.affinity is None else shape.affinity.pod_affinity
    return () if affinity is None else affinity.required


def anti_terms(shape: PodShape) -> tuple[PodAffinityTerm, ...]:
    affinity = None if shape.affinity is None else shape.affinity.pod_anti_affinity
    return () if affinity is None else affinity.required


def topology_keys(pods: Iterable[Pod], world: World) -> set[str]:
    """Every label over which any of the pods is kept near, apart or even."""
    return {
        key
        for pod in pods
        for key in (
            *(one.topology_key for one in world.hard_spread(pod)),
            *(one.topology_key for one in near_terms(pod.shape)),
            *(one.topology_key for one in anti_terms(pod.shape)),
        )
    }


def _together(left: NodeInfo, right: NodeInfo, key: str) -> bool:
    value = node_label(left, key)
    return value is not None and value == node_label(right, key)


def _counts(
    pod: Pod, constraint: TopologySpreadConstraint, labels: Labels, taints: Iterable[Taint], node_name: str
) -> bool:
    """Whether a node is one over which the pod spreads."""
    if constraint.node_affinity_policy != "Ignore" and not filter_matches(pod.shape, labels, node_name):
        return False
    return constraint.node_taints_policy != "Honor" or all(tolerated(pod.shape.tolerations, one) for one in taints)
