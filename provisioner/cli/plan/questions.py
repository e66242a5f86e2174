"""From objects to what is asked: a world for the scheduler, the pods that want a place in it, and the fleet that runs now."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

import msgspec

from provisioner.apis import names
from provisioner.apis.attachments import DEFAULT_CLASS
from provisioner.apis.core import AnyPodGroup, Node, StorageClass, StorageClassMeta, VolcanoGroup, VolcanoGroupStatus
from provisioner.apis.gangs import key_of_object, source_of, told
from provisioner.apis.karpenter import NodeClassReference, NodePool
from provisioner.apis.meta import Condition
from provisioner.apis.pods import Pod, PodShape, is_active, is_daemon, is_mirror, is_terminal, opted_out
from provisioner.apis.stamping import StampFacts
from provisioner.apis.templates import Admitted, admitted_pods, are_of_eks, owned
from provisioner.cli.plan.catalogues import DEFAULT_POOL, PlanCatalogue, default_pool
from provisioner.cli.plan.objects import InputProblem, PlanObjects
from provisioner.cli.plan.static_nodes import static_nodes
from provisioner.cli.plan.workloads import MAX_CLAIMS, MAX_PODS, Workload, expanded, unexpanded
from provisioner.cloudprovider.overlays import Overlays
from provisioner.cloudprovider.types import InstanceType, offering_price
from provisioner.disruption.gangs import what_lacks
from provisioner.kube.resources import GROUP_KINDS
from provisioner.scheduling.constraints.volumes import statically_bound
from provisioner.scheduling.problem import Storage, World
from provisioner.scheduling.world import world_of
from provisioner.state.admission import admission_of
from provisioner.state.cluster import Cluster
from provisioner.state.knowledge import KindKnowledge
from provisioner.state.surroundings import SurroundingsKeeper
from provisioner.state.types_by_pool import TypesByPool
from provisioner.support.clock import Clock
from provisioner.values.printable import counted, listed

_CONTROL_PLANE: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
_NOT_OURS: Final = {"eks.amazonaws.com/compute-type": "fargate", "type": "virtual-kubelet"}
_SPOT_LABELS: Final = {
    names.CAPACITY_TYPE_LABEL: names.CAPACITY_SPOT,
    "eks.amazonaws.com/capacityType": "SPOT",
    "node.kubernetes.io/lifecycle": "spot",
}
_NAMED: Final = 5
_DEFAULT: Final = "(default)"
"""No class of a cluster has this name."""


@dataclass(frozen=True, slots=True)
class Current:
    """The fleet that runs now.

    Attributes:
        groups: (instance type, zone, capacity type, nodes, price of one), the dearest together first.
        unpriced: instance types, or names of nodes without one, that the catalogue has no price for, and how many nodes of each.
        usd_per_hour: of all nodes with a price.
    """

    groups: tuple[tuple[str, str, str, int, float], ...]
    unpriced: tuple[tuple[str, int], ...]

    @property
    def usd_per_hour(self) -> float:
        return sum(count * price for _, _, _, count, price in self.groups)

    @property
    def is_known(self) -> bool:
        """Whether any of the nodes has a price; or there are none."""
        return bool(self.groups) or not self.unpriced

    @property
    def nodes(self) -> int:
        """With a price."""
        return sum(count for _, _, _, count, _ in self.groups)


@dataclass(frozen=True, slots=True)
class PlanQuestion:
    """What is asked.

    Attributes:
        pods: in the scheduler's order.
        notes: what to know about the answer, sentences.
        refusing: how many pods require a node of no NodePool, and are not asked about.
    """

    world: World
    pods: tuple[Pod, ...]
    notes: tuple[str, ...]
    refusing: int = 0


def pods_in(objects: PlanObjects) -> tuple[Pod, ...]:
    """Every pod: those that are there, and those that workloads will make. What cannot be read becomes a problem."""
    pods = list(objects.pods)
    count, claims = len(pods), 0
    unknown: set[str] = set()
    there = {f"{one.metadata.namespace or 'default'}/{one.metadata.name}" for one in objects.volume_claims}
    admission = replace(admission_of(objects.admitting), extended=are_of_eks(objects.nodes))
    for one in _to_make(objects):
        if count + one.replicas > MAX_PODS:
            text = f"would make more than {MAX_PODS:,} pods together with the objects before it; plan in parts"
            objects.complain(InputProblem(one.file, one.named, "spec.replicas", text))
            continue
        if claims + one.replicas * len(one.claims) > MAX_CLAIMS:
            text = (
                f"{len(one.claims):,} templates times {one.replicas:,} replicas would make more than {MAX_CLAIMS:,} "
                "PersistentVolumeClaims together with the objects before it; plan in parts"
            )
            objects.complain(InputProblem(one.file, one.named, "spec.volumeClaimTemplates", text))
            continue
        template = one.template if one.alone else owned(one.template, one.kind)
        made = admitted_pods(template, admission, _stamping(objects, one.namespace), one.replicas)
        unknown.update(name for _, each in made for name in each.unknown)
        problem = _problem(one, made[0][1])
        if problem is not None:
            objects.complain(problem)
            continue
        count += one.replicas
        claims += one.replicas * len(one.claims)
        first = one.first
        for some, each in made:
            pods += expanded(replace(one, first=first, replicas=some), each.shape(one.namespace), there)
            first += some
    objects.notes += [f"The input has no {one}; its additions to pods are not included." for one in sorted(unknown)]
    return tuple(pods)


def _to_make(objects: PlanObjects) -> list[Workload]:
    """The workloads whose pods are still to be made."""
    there = unexpanded(objects.workloads, objects.pods)
    return [one for one in (*objects.loose, *objects.workloads) if id(one) not in there]


def _stamping(objects: PlanObjects, namespace: str) -> StampFacts:
    """What the webhook goes by."""
    taints = {pool.name: pool.taints for pool in objects.pools}
    labels = next((one.metadata.labels for one in objects.namespaces if one.metadata.name == namespace), {})
    return StampFacts(namespace, labels, objects.stamping_defaults, taints_of=taints.get if taints else None)


def _problem(one: Workload, made: Admitted) -> InputProblem | None:
    """Why a workload has no pods that can be planned."""
    if made.refusal:
        return InputProblem(one.file, one.named, "", f"the API server refuses its pods: {made.refusal}")
    error = made.shape(one.namespace).error
    path, _, rest = error.partition(": ")
    where = path if one.alone else f"spec.template.{path}"
    return InputProblem(one.file, one.named, where if rest else "", rest or error) if error else None


def question_of(
    objects: PlanObjects,
    pods: Sequence[Pod],
    pools: Sequence[NodePool],
    table: PlanCatalogue,
    clock: Clock,
    *,
    anew: bool,
) -> PlanQuestion:
    """What to ask. Where the input has no Nodes, every pod is planned anew.

    Args:
        objects: everything but pods and NodePools.
        pods: as of `pods_in`.
        pools: to plan with; a default one where there is none.
        table: what can be had.
        clock: for the instant.
        anew: whether every pod is planned, as if no worker node were there; else only pods without a node are.
    """
    anew = anew or not objects.nodes
    notes: list[str] = []
    if not pools:
        pools = [default_pool(table)]
        what = "" if table.name == "kwok" else " of the families c, m and r"
        usable = "usable " if any(one.object.startswith("NodePool ") for one in objects.problems) else ""
        notes.append(
            f'The input has no {usable}NodePool. The plan uses a NodePool "{DEFAULT_POOL}" with on-demand amd64 nodes{what}.'
        )
    staying = [_ready(pool) for pool in pools if pool.metadata.deletion_timestamp is None]
    if len(staying) < len(pools):
        notes.append("NodePools that are being deleted are not used.")
    static = {pool.name for pool in staying if pool.is_static}
    types_of, more = _offered(objects, staying, table, clock)
    notes += more
    cluster = Cluster(types_of.of_claim, clock, driver_grace=timedelta(0))
    replaced = {
        node.metadata.name for node in objects.nodes if anew and is_worker(node) and _pool_of(node) not in static
    }
    standing: list[Node] = []
    if static and objects.nodes:
        notes.append("Nodes of static NodePools stay unchanged, and their cost is not shown.")
    for pool in staying if not objects.nodes else ():
        if pool.is_static:
            own, note = static_nodes(pool, tuple(types_of(pool.name).values()))
            standing += own
            notes.append(note)
    for pool in staying:
        cluster.pool_changed(None, pool)
    for daemon_set in objects.daemon_sets:
        cluster.daemonset_changed(None, daemon_set)
    for admitting in objects.admitting:
        cluster.admission_changed(None, admitting)
    for csi_driver in objects.csi_drivers:
        cluster.csi_driver_changed(None, csi_driver)
    for csi_node in objects.csi_nodes:
        cluster.csi_node_changed(None, csi_node)
    _around(cluster, objects)
    for node in (*objects.nodes, *standing):
        if node.metadata.name not in replaced:
            cluster.node_changed(None, node)
    there = {node.metadata.name for node in objects.nodes} - replaced
    for claim in objects.claims:
        if not anew or claim.status.node_name in there:
            cluster.claim_changed(None, claim)
    for pod in pods:
        moves = anew and pod.node_name not in there and is_active(pod) and not is_daemon(pod) and not is_mirror(pod)
        cluster.pod_changed(None, _unbound(pod) if moves or not pod.node_name else pod)
    notes += _groups(cluster, objects)
    cluster.settle()
    snapshot = cluster.snapshot()
    gathered = world_of(
        snapshot,
        lambda pool: tuple(types_of(pool.name).values()),
        table.well_known,
        lambda _: True,
        reservation_label=table.reservation_label,
    )
    notes += [
        f'NodePool "{one.pool.name}": {one.error}. The {"NodePool" if one.left_out else "annotation"} is ignored.'
        for one in gathered.unreadable
    ]
    world = _with_samples(_plain(gathered.world), objects, pods)
    refusing = tuple(pod for pod in snapshot.pending if opted_out(pod))
    held = [f"{told(key)} {what_lacks(group)}" for key, group in snapshot.groups.items()]
    notes += [f"Pods are not planned, because {one}." for one in held[:_NAMED]]
    if held[_NAMED:]:
        notes.append(f"Nor are the pods of {counted(len(held) - _NAMED, 'other group')}.")
    notes += _about(pods, snapshot.waiting, refusing, anew=anew, objects=objects)
    return PlanQuestion(world, snapshot.waiting, tuple(notes), len(refusing))


def _groups(cluster: Cluster, objects: PlanObjects) -> list[str]:
    """Tell the state what is known of groups of pods; what to know about those of which nothing is."""
    found = {source_of(key_of_object(one)) for one in objects.pod_groups}
    for source in GROUP_KINDS:
        cluster.pod_groups_known(KindKnowledge.READ if source in found else KindKnowledge.NOT_SERVED, source)
    for group in objects.pod_groups:
        cluster.pod_group_changed(None, _admitted(group))
    jobs = {one.uid: one.replicas for one in objects.workloads if one.uid}
    unknown = []
    for gang in cluster.gang_jobs():
        cluster.gang_job_read(gang.key, jobs.get(gang.uid, 0))
        if gang.uid not in jobs:
            unknown.append(f"{gang.namespace}/{gang.name}")
    if not unknown:
        return []
    return [
        f"The input has no Job {listed(unknown, _NAMED)}, whose parallelism is the minimum of a gang; its pods are planned on their own."
    ]


def _admitted(group: AnyPodGroup) -> AnyPodGroup:
    """A PodGroup as somebody wrote it, which Volcano has not seen, is planned as if its queue had room for it."""
    if isinstance(group, VolcanoGroup) and not group.status.phase:
        return msgspec.structs.replace(group, status=VolcanoGroupStatus(phase="Inqueue"))
    return group


def _offered(
    objects: PlanObjects, pools: Sequence[NodePool], table: PlanCatalogue, clock: Clock
) -> tuple[TypesByPool, list[str]]:
    """What each NodePool may launch, under the NodeOverlays; and what to know about these."""
    overlays = Overlays(lambda: pools, clock)
    for overlay in objects.overlays:
        overlays.changed(None, overlay)
    by_name = {pool.name: pool for pool in pools}
    # the same tuple each time: overlays remember by it
    base: dict[tuple[str, NodeClassReference], tuple[InstanceType, ...]] = {}

    def listed(pool: NodePool) -> tuple[InstanceType, ...]:
        key = pool.name, pool.node_class_ref
        if key not in base:
            base[key] = table.types_of(pool)
        return base[key]

    notes = []
    if objects.overlays:
        notes.append("NodeOverlays are applied; the provisioner does so with --feature-gates=NodeOverlay=true.")
    for overlay in objects.overlays:
        problem = overlays.problem(overlay.metadata.name)
        if problem is not None:
            notes.append(f'NodeOverlay "{overlay.metadata.name}" is not applied: {problem.message}.')
    return TypesByPool(by_name.get, overlays.over(listed)), notes


def _pool_of(node: Node) -> str:
    """The name of a node's NodePool; "" where it has none."""
    return node.metadata.labels.get(names.NODEPOOL_LABEL, "")


def current_of(objects: PlanObjects, table: PlanCatalogue, clock: Clock) -> Current:
    """What the worker nodes cost that run now, at the prices of the catalogue and of NodeOverlays; those of static NodePools left out."""
    found: Counter[tuple[str, str, str, float]] = Counter()
    unpriced: Counter[str] = Counter()
    types_of, _ = _offered(objects, objects.pools, table, clock)
    static = {pool.name for pool in objects.pools if pool.is_static}
    for node in objects.nodes:
        if not is_worker(node) or _pool_of(node) in static:
            continue
        own = {names.normalized_label(key): value for key, value in node.metadata.labels.items()}
        name, zone = own.get(names.INSTANCE_TYPE_LABEL, ""), own.get(names.ZONE_LABEL, "")
        spot = any(own.get(key) == value for key, value in _SPOT_LABELS.items())
        kind = names.CAPACITY_SPOT if spot else names.CAPACITY_ON_DEMAND
        price = _price(types_of(_pool_of(node)).get(name) or table.all_types.get(name), zone, kind)
        if price is None:
            unpriced[name or node.metadata.name] += 1
        else:
            found[name, zone, kind, price] += 1
    groups = sorted(
        ((name, zone, kind, count, price) for (name, zone, kind, price), count in found.items()),
        key=lambda one: (-one[3] * one[4], one[:3]),
    )
    return Current(tuple(groups), tuple(sorted(unpriced.items())))


def is_worker(node: Node) -> bool:
    """Whether pods run there that could run on other nodes: not a control plane's, not Fargate's, not a virtual one."""
    own = node.metadata.labels
    return not any(key in own for key in _CONTROL_PLANE) and not any(own.get(k) == v for k, v in _NOT_OURS.items())


def _price(instance_type: InstanceType | None, zone: str, kind: str) -> float | None:
    if instance_type is None:
        return None
    price = offering_price(instance_type, zone, kind)
    if price is None:  # a zone that the catalogue does not have, or none
        price = min((one.price for one in instance_type.offerings if one.capacity_type == kind), default=None)
    return price


def _ready(pool: NodePool) -> NodePool:
    """The pool as if its NodeClass had been found: that is the question's premise."""
    ready = Condition(type=names.READY, status="True", reason="Planned", message="")
    others = tuple(one for one in pool.status.conditions if one.type != names.READY)
    return msgspec.structs.replace(pool, status=msgspec.structs.replace(pool.status, conditions=(*others, ready)))


def _unbound(pod: Pod) -> Pod:
    """A pod that has no node, and none of those that there are, as its scheduler says: that is the question's premise."""
    return msgspec.structs.replace(
        pod,
        node_name="",
        nominated_node_name="",
        phase=pod.phase if is_terminal(pod) else "Pending",
        scheduled=False,
        unschedulable=True,
    )


def _around(cluster: Cluster, objects: PlanObjects) -> None:
    def take(keeper: SurroundingsKeeper) -> None:
        for namespace in objects.namespaces:
            keeper.namespace_changed(None, namespace)
        for storage_class in (*objects.storage_classes, *_unknown_classes(objects)):
            keeper.class_changed(None, storage_class)
        for volume in objects.volumes:
            keeper.volume_changed(None, volume)
        around = keeper.frozen()
        written = [claim for claim in objects.volume_claims if not claim.metadata.uid]
        read = [claim for claim in objects.volume_claims if claim.metadata.uid]
        for claim in (*read, *statically_bound(written, Storage(volumes=around.volumes, classes=around.classes))):
            keeper.claim_changed(None, claim)

    cluster.surrounding_changed(take)


def _unknown_classes(objects: PlanObjects) -> list[StorageClass]:
    """A class that makes volumes anywhere for each that claim templates name and the input lacks, by name; so for the cluster's default."""
    asked = {template.spec.storage_class_name for one in _to_make(objects) for template in one.claims}
    known = {one.metadata.name for one in objects.storage_classes}
    default = any(one.metadata.annotations.get(DEFAULT_CLASS) == "true" for one in objects.storage_classes)
    found = [_anywhere(name, {}) for name in sorted(one for one in asked if one) if name not in known]
    return [*found, *([_anywhere(_DEFAULT, {DEFAULT_CLASS: "true"})] if None in asked and not default else [])]


def _anywhere(name: str, annotations: Mapping[str, str]) -> StorageClass:
    metadata = StorageClassMeta(name=name, annotations=dict(annotations))
    return StorageClass(metadata=metadata, volume_binding_mode="WaitForFirstConsumer")


def _plain(world: World) -> World:
    """With dicts for the state's read-only views of its own: those cannot be sent to another process."""
    storage, defaults = world.storage, world.spread_defaults
    return replace(
        world,
        bins=tuple(replace(one, labels=dict(one.labels), attach_limits=dict(one.attach_limits)) for one in world.bins),
        namespaces=dict(world.namespaces),
        storage=Storage(
            claims=dict(storage.claims),
            volumes=dict(storage.volumes),
            classes=dict(storage.classes),
            attach_limits={name: dict(limits) for name, limits in storage.attach_limits.items()},
        ),
        spread_defaults=replace(defaults, services=dict(defaults.services), controllers=dict(defaults.controllers)),
    )


def _with_samples(world: World, objects: PlanObjects, pods: Sequence[Pod]) -> World:
    """With the pods of DaemonSets that are not in the input themselves: one pod of each says what the others are."""
    known = {(one.metadata.namespace or "default", one.metadata.name) for one in objects.daemon_sets}
    samples: dict[tuple[str, str], PodShape] = {}
    for pod in sorted(pods, key=lambda one: one.key):
        if is_daemon(pod) and pod.owner is not None and not is_terminal(pod):
            key = pod.namespace, pod.owner.name
            if key not in known:
                samples.setdefault(key, pod.shape)
    if not samples:
        return world
    return replace(world, daemons=(*world.daemons, *(shape for _, shape in sorted(samples.items()))))


def _by_images(objects: PlanObjects) -> list[str]:
    """Namespaces and workloads that ask for the architectures of the images of pods that are still to be made, for people."""
    made = _to_make(objects)
    spaces = {one.namespace for one in made}
    return [
        *(
            f"Namespace {one.metadata.name}"
            for one in objects.namespaces
            if one.metadata.name in spaces and names.STAMP_IMAGE_ARCH in one.metadata.labels
        ),
        *(
            f"{one.kind} {one.namespace}/{one.name}"
            for one in made
            if names.STAMP_IMAGE_ARCH in one.template.metadata.annotations
        ),
    ]


def _about(
    pods: Sequence[Pod], waiting: Sequence[Pod], refusing: Sequence[Pod], *, anew: bool, objects: PlanObjects
) -> list[str]:
    notes = []
    if refusing:
        notes.append(
            f"No NodePool is considered for {listed((pod.key for pod in refusing), _NAMED)}: the required node affinity demands a node "
            f"without the label {names.NODEPOOL_LABEL}."
        )
    if asking := _by_images(objects):
        notes.append(
            f"The plan does not look up the architectures of images; {listed(asking, _NAMED)} request{'s' if len(asking) == 1 else ''} it."
        )
    gated = sum(pod.gated and is_active(pod) for pod in pods)
    if gated:
        notes.append(
            f"{counted(gated, 'pod')} {'has' if gated == 1 else 'have'} scheduling gates and {'is' if gated == 1 else 'are'} not planned."
        )
    bare = sum(len(pod.shape.requests) <= 1 for pod in waiting)
    if bare:
        notes.append(
            f"{counted(bare, 'pod')} without resource requests count{'s' if bare == 1 else ''} only towards the maximum number of pods of a node."
        )
    volumes = sum(
        volume.ephemeral is not None for pod in waiting if pod.owner is not None for volume in pod.shape.volumes
    )
    if any(one.claims for one in objects.workloads) and volumes:
        notes.append(f"The cost of {counted(volumes, 'volume')} yet to be created is not included.")
    if missing := [one.metadata.name for one in _unknown_classes(objects)]:
        notes.append(
            f"The input has no StorageClass {listed(missing, _NAMED)}, which volumeClaimTemplates name. Their volumes are planned as "
            "if they could be created in any zone."
        )
    if not anew and objects.nodes and not waiting:
        notes.append(
            "All pods in the input are assigned to nodes. Use --current to plan them from scratch and compare the cost."
        )
    return notes
