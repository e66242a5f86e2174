"""What one launch orders from EC2: the offerings it may take, the launch templates they need, and what the instance is then known to be. Pure.

Claims whose orders are equal are launched by one call. Source: spec/karpenter-aws.md 5.1 to 5.5.
Differs: offerings that nothing speaks against are ordered alone, and doubted ones only where there are no others; of a placement group's
    partitions the first allowed one by number, and the label says the same.
"""

import functools
import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import EC2NodeClass, NetworkInterface
from provisioner.apis.ec2_hash import class_stamp
from provisioner.apis.karpenter import NodeClaim
from provisioner.apis.launch_sets import sets_of
from provisioner.apis.meta import condition
from provisioner.cloudprovider.errors import CloudError, CreateError, InsufficientCapacityError, NodeClassNotReadyError
from provisioner.cloudprovider.types import InstanceType, LaunchedInstance, Offering, wishes_of
from provisioner.ec2 import labels
from provisioner.ec2.instances.instances import Ec2Instance, provider_id
from provisioner.ec2.launch import fleet, selection, templates
from provisioner.ec2.launch.fleet import Override
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.selection import Selection
from provisioner.ec2.launch.templates import LaunchTemplate
from provisioner.ec2.launch.userdata import bottlerocket, rendering
from provisioner.ec2.launch.userdata.inputs import (
    JoinedCluster,
    NodeInput,
    UserDataError,
    node_labels,
    node_taints,
)
from provisioner.ec2.market.instance_types import EfaLaunch, PlacementGroup, Reserved, image_for
from provisioner.ec2.market.unavailable_offerings import OfferingKey, OfferingStanding
from provisioner.values.message import Said
from provisioner.values.printable import counted, listed
from provisioner.values.requirement import Requirements
from provisioner.values.resources import PODS, Resources

_TRUE: Final = "true"
_ZONES_NAMED: Final = 6


@dataclass(frozen=True)
class LaunchWorld:
    """What launches are made from; each is asked at every launch and must not wait for anything.

    Attributes:
        class_of: the class that a claim refers to.
        types_of: the catalogue of a class; () while EC2 has not listed it.
        cluster: that instances join; raises a `CloudError` while it is not known.
        max_pods: what the kubelet of an instance type is told, for a class.
        reserved: what it is told to reserve, where the class has expressions for that; () elsewhere.
        efa_launch: how a type is launched for pods that ask for EFA, for a class.
        claims: all NodeClaims that there are, from a cache.
        claims_now: the same, asked of the API server now; raises `ApiError`.
        read: one of them by name, likewise.
        write: puts a mark on a claim, or takes it off, and returns what the claim is then; refused with `Conflict` where the claim has changed since it
            was read; raises `ApiError`.
        adjusted: whether the price of (type, zone, capacity type) is not EC2's own.
        overlaid: the catalogue as NodeOverlays change it for the NodePool of that name.
        failing: why EC2 ended instances of a claim's NodePool at launch, as the NodePool says; "" where it says nothing of it.
    """

    class_of: Callable[[NodeClaim], EC2NodeClass | None]
    types_of: Callable[[EC2NodeClass], Sequence[InstanceType]]
    cluster: Callable[[], JoinedCluster]
    max_pods: Callable[[EC2NodeClass, str], int]
    claims: Callable[[], Sequence[NodeClaim]]
    claims_now: Callable[[], Sequence[NodeClaim]]
    read: Callable[[str], NodeClaim]
    write: Callable[[NodeClaim, Mark | None], NodeClaim]
    reserved: Callable[[EC2NodeClass, str], Reserved] = lambda _class, _type: ()
    efa_launch: Callable[[EC2NodeClass, str], EfaLaunch] = lambda _class, _type: EfaLaunch()
    group_of: Callable[[EC2NodeClass], PlacementGroup | None] = lambda _: None
    adjusted: Callable[[str, str, str], bool] = lambda name, zone, kind: False  # noqa: ARG005 - the seam has it
    overlaid: Callable[[str, Sequence[InstanceType]], Sequence[InstanceType]] = lambda _, types: types
    failing: Callable[[NodeClaim], str] = lambda _: ""

    def types_for(self, claim: NodeClaim, node_class: EC2NodeClass) -> Sequence[InstanceType]:
        """What a claim of the class may become."""
        types = self.types_of(node_class)
        return self.overlaid(claim.pool, types) if claim.pool else types


@dataclass(frozen=True, slots=True)
class OrderContext:
    """What orders of a class are made from, at one instant.

    Attributes:
        types: the class's catalogue.
        subnets: the subnet that is used, by zone.
        group: the placement group that the class resolved to.
        max_pods: what the kubelet of a type is told.
        kept: what it is told to reserve, where the class has expressions for that; () elsewhere.
        efa: how a type is launched for pods that ask for EFA.
        addresses: that one instance takes from its subnet.
        standing: how much may be expected of an offering.
        reserved: whether the feature gate ReservedCapacity is on.
        best_effort: whether minValues may be missed (MIN_VALUES_POLICY).
        adjusted: whether the price of (type, zone, capacity type) is not EC2's own, so that EC2 must go by ours.
    """

    node_class: EC2NodeClass
    types: Sequence[InstanceType]
    cluster: JoinedCluster
    region: str
    subnets: Mapping[str, str]
    max_pods: Callable[[str], int]
    standing: Callable[[OfferingKey], OfferingStanding] = field(default=lambda _: OfferingStanding.OPEN)
    kept: Callable[[str], Reserved] = field(default=lambda _: ())
    efa: Callable[[str], EfaLaunch] = field(default=lambda _: EfaLaunch())
    addresses: int = 1
    group: PlacementGroup | None = None
    reserved: bool = True
    best_effort: bool = False
    adjusted: Callable[[str, str, str], bool] = lambda name, zone, kind: False  # noqa: ARG005 - the seam has it


@dataclass(frozen=True)
class Order:
    """An order for any number of instances.

    Attributes:
        lane: class and pool; what fails for one order may be expected to fail for others of its lane.
        overrides: what EC2 may choose from.
        doubted: whether nothing but doubted offerings was left, of which only granted numbers may be ordered.
        needed: the templates that the overrides name.
        types: of the overrides, by name.
        addresses: that one instance takes from its subnet.
        all_or_none: whether as many instances are launched as are ordered, or none.
    """

    lane: tuple[str, str]
    capacity_type: str
    overrides: tuple[Override, ...]
    tags: Mapping[str, str]
    needed: tuple[LaunchTemplate, ...]
    types: Mapping[str, InstanceType]
    doubted: bool = False
    reservation_type: str = ""
    by_priority: bool = False
    context: str = ""
    addresses: int = 1
    all_or_none: bool = False

    @functools.cached_property
    def key(self) -> str:
        """Equal for orders that one call can serve."""
        said = (
            *(self.lane, self.capacity_type, self.reservation_type, self.by_priority, self.context, dict(self.tags)),
            self.doubted,
            self.overrides,
        )
        return hashlib.blake2b(msgspec.json.encode(said, order="deterministic"), digest_size=16).hexdigest()

    def override(self, instance_type: str, zone: str) -> Override | None:
        """What was ordered of a type in a zone."""
        for one in self.overrides:
            if (one.offer.instance_type, one.offer.zone) == (instance_type, zone):
                return one
        return None


def lane_of(claim: NodeClaim) -> tuple[str, str]:
    """The lane of the claim's orders, before there is one."""
    return claim.spec.node_class_ref.name, claim.pool


def ask_key(claim: NodeClaim) -> bytes:
    """Equal for claims that get equal orders; identity and what only matters later is not in it."""
    spec, given = claim.spec, claim.metadata.annotations
    return msgspec.json.encode(
        (
            *(spec.node_class_ref, spec.requirements, spec.resources, spec.taints, spec.startup_taints),
            *(claim.metadata.labels, given.get(names.MIN_VALUES_RELAXED), given.get(names.PRICE_OVERLAY_APPLIED)),
            given.get(names.KUBELET_ANNOTATION),
        ),
        order="deterministic",
    )


def company_of(claim: NodeClaim) -> tuple[str, ...]:
    """The launch sets in which a claim is not alone, by id."""
    return tuple([one.id for one in sets_of(claim.metadata.annotations) if one.nodes > 1])


def for_company(
    order: Order,
    claims: Collection[NodeClaim],
    count: int,
    may_hold: Callable[[fleet.Override, int], bool] = lambda _override, _count: True,
) -> Order:
    """The order for these claims: all or none where they are of the same launch sets, and EC2 can be asked for that.

    Not where one subnet or reservation cannot hold so many (`may_hold`): EC2 would launch none, and several may hold them.

    It follows from the claims and the order, so whoever repeats a call of an earlier process asks for the same, unless other launches have taken what is
    left there.
    """
    (company, *others) = {company_of(one) for one in claims}
    whole = (
        bool(company)
        and not others
        and fleet.can_be_whole(order.overrides, count, order.capacity_type, order.reservation_type)
        and all(may_hold(one, count) for one in order.overrides)
    )
    return order if order.all_or_none is whole else replace(order, all_or_none=whole)


def ready(claim: NodeClaim, node_class: EC2NodeClass | None) -> EC2NodeClass:
    """The class, if something can be launched for it now.

    Raises:
        NodeClassNotReadyError: it is missing, going, or says itself that it is not ready.
        CreateError: it was not judged yet as it is now.
    """
    reference = claim.spec.node_class_ref
    if node_class is None:
        raise NodeClassNotReadyError(reference.kind, reference.name, "it does not exist")
    if node_class.metadata.deletion_timestamp is not None:
        raise NodeClassNotReadyError(reference.kind, reference.name, "it is being deleted")
    found = condition(node_class.status.conditions, names.READY)
    if found is not None and found.status == names.FALSE:
        raise NodeClassNotReadyError(reference.kind, reference.name, found.message or found.reason)
    judged = found is not None and found.observed_generation in {0, node_class.metadata.generation}
    if found is None or found.status != names.TRUE or not judged:
        raise CreateError(
            names.NODECLASS_READINESS_UNKNOWN, f"the readiness of {reference.kind} {reference.name} is not known yet"
        )
    return node_class


def _no_image_runs_on(instance_types: str) -> str:
    return Said(f"no image of the EC2NodeClass runs on {instance_types}")


def order_of(claim: NodeClaim, around: OrderContext) -> Order:
    """What to order for a claim.

    Raises:
        InsufficientCapacityError: nothing that it allows is available; what helps is for `reopening` to say.
        CreateError: the claim or the class cannot be turned into an order.
    """
    name, node_class = claim.metadata.name, around.node_class
    requirements, requests = wishes_of(claim)
    relaxed = claim.metadata.annotations.get(names.MIN_VALUES_RELAXED) == _TRUE
    found = selection.select(
        name,
        named(around.types, requirements),
        requirements,
        requests,
        best_effort=around.best_effort or relaxed,
    )
    partition = _partition(found, requirements)
    offered = [
        (one, offering)
        for one in found.types
        for offering in found.offerings(one)
        if offering.zone in around.subnets and partition in {"", _partition_of(offering)}
    ]
    if not offered:
        raise InsufficientCapacityError(
            name, "no subnet of the EC2NodeClass in the zones of the matching instance types has free IP addresses"
        )
    images = {one.name: image_for(one.requirements, node_class.status.amis) for one, _ in offered}
    offered = [pair for pair in offered if images[pair[0].name] is not None]
    if not offered:
        raise CreateError(names.LAUNCH_FAILED, _no_image_runs_on(", ".join(sorted(images))))
    judged = {
        _offer(one, offering, around.group, partition): (one, offering) for one, offering in reversed(offered)
    }  # reversed: of a type's equal offers the first, so the cheapest, stays
    trusted = {offer: pair for offer, pair in judged.items() if around.standing(offer) is OfferingStanding.OPEN}
    make = _TemplateMaker(claim, around, requirements, requests, found.capacity_type, partition)
    chosen = sorted((trusted or judged).items(), key=lambda item: (item[1][1].price, item[0]))
    overrides = fleet.overrides_of(
        (
            (offer, offering.price, offering.requirements.requirement(labels.RESERVATION_ID).single_value or "")
            for offer, (_, offering) in chosen
        ),
        around.subnets,
        lambda offer, _: make.template(*judged[offer]),
    )
    context = node_class.spec.context
    return Order(
        lane=(node_class.metadata.name, claim.pool),
        capacity_type=found.capacity_type,
        overrides=tuple(overrides),
        tags=make.tags,
        needed=tuple(make.made[name] for name in sorted({one.template for one in overrides})),
        types={one.name: make.fitted(one) for one, _ in (pair for _, pair in chosen)},
        doubted=not trusted,
        reservation_type=selection.reservation_type(chosen[0][1][1]),
        by_priority=claim.metadata.annotations.get(names.PRICE_OVERLAY_APPLIED) == _TRUE
        or any(offering.overlaid for _, (_, offering) in chosen)
        or any(around.adjusted(one.offer.instance_type, one.offer.zone, one.offer.capacity_type) for one in overrides),
        context=context if isinstance(context, str) and not relaxed else "",
        addresses=around.addresses,
    )


def reopening(
    claim: NodeClaim, around: OrderContext, available: Callable[[OfferingKey], bool]
) -> tuple[OfferingKey, ...]:
    """The offers that the claim could take were they not short or full just now; none: it can never be launched as it is."""
    requirements, requests = wishes_of(claim)
    known = labels.WELL_KNOWN | names.WELL_KNOWN_LABELS
    zones = {one.zone for one in around.node_class.status.subnets}
    return tuple(
        sorted(
            {
                offer
                for one in named(around.types, requirements)
                if requirements.incompatibility(one.requirements, known) is None and requests.fits(one.allocatable)
                for offering in one.offerings
                if offering.zone in zones and requirements.conflict(offering.requirements) is None
                for offer in (_offer(one, offering, around.group, _partition_of(offering)),)
                if offering.launchable or offering.full is not None or not available(offer)
            }
        )
    )


def why_short(offers: Sequence[OfferingKey], around: OrderContext) -> str:
    """Why a claim gets none of the offers that `reopening` says it could take, a clause: EC2 is short, or the subnets of the class are."""
    dry = [one for one in offers if one.zone not in around.subnets]
    short = [one for one in offers if one.zone in around.subnets]
    found = []
    if short:
        every = "" if dry else "all "
        first = short[0]
        found.append(
            Said(
                f"EC2 has had insufficient capacity lately for {every}{counted(len(short), 'offering')} that it allows, such as "
                f"{first.instance_type} {first.capacity_type} in {first.zone}"
            )
        )
    if dry:
        zones = listed(sorted({one.zone for one in dry}), _ZONES_NAMED)
        found.append(
            Said(
                f"no subnet of EC2NodeClass {around.node_class.metadata.name} in {zones} has the free IP addresses that an instance needs "
                f"({around.addresses}); add subnets with free IP addresses"
            )
        )
    return "; ".join(found)


def named(types: Iterable[InstanceType], requirements: Requirements) -> list[InstanceType]:
    """The types that the requirements name; cheap, and takes most out."""
    wanted = requirements.requirement(names.INSTANCE_TYPE_LABEL)
    return [one for one in types if wanted.has(one.name)]


def offer_of(claim: NodeClaim) -> OfferingKey:
    """What the claim's instance was bought as."""
    found = claim.metadata.labels
    return OfferingKey(
        capacity_type=found.get(names.CAPACITY_TYPE_LABEL, ""),
        instance_type=found.get(names.INSTANCE_TYPE_LABEL, ""),
        zone=found.get(names.ZONE_LABEL, ""),
        group=found.get(labels.PLACEMENT_GROUP_ID, ""),
        partition=found.get(labels.PLACEMENT_GROUP_PARTITION, ""),
    )


@dataclass(frozen=True, slots=True)
class Made:
    """One instance, however it was found out.

    Attributes:
        partition: of the placement group; "" where it is not known.
    """

    instance_id: str
    instance_type: str
    zone: str
    capacity_type: str
    image: str = ""
    tenancy: str = labels.DEFAULT_TENANCY
    reservation: str = ""
    reservation_type: str = "default"
    interruptible: bool = False
    group: str = ""
    partition: str = ""
    efas: int = 0

    @classmethod
    def launched(cls, launched: fleet.Launched, order: Order) -> "Made":
        """From the answer to an order."""
        override = order.override(launched.instance_type, launched.zone)
        data = {} if override is None else _data_of(order, override.template)
        placed = data.get("Placement", {})
        return cls(
            launched.instance,
            launched.instance_type,
            launched.zone,
            launched.capacity_type,
            launched.image,
            tenancy=str(placed.get("Tenancy", labels.DEFAULT_TENANCY)),
            reservation=override.reservation if override is not None else "",
            reservation_type=order.reservation_type
            if order.reservation_type == labels.CAPACITY_BLOCK
            else labels.DEFAULT_RESERVATION,
            interruptible=order.reservation_type == fleet.INTERRUPTIBLE,
            group=str(placed.get("GroupId", "")),
            partition=str(placed.get("PartitionNumber", "")),
            efas=sum(one.get("InterfaceType") in ec2.EFA_TYPES for one in data.get("NetworkInterfaces", ())),
        )

    @classmethod
    def described(cls, instance: Ec2Instance) -> "Made":
        """From what EC2 describes."""
        return cls(
            instance.id,
            instance.instance_type,
            instance.zone,
            instance.capacity_type,
            instance.image_id,
            tenancy=instance.tenancy,
            reservation=instance.reservation_id if instance.capacity_type == names.CAPACITY_RESERVED else "",
            reservation_type=instance.reservation_type or "default",
            interruptible=instance.interruptible,
            group=instance.group_id,
            partition=str(instance.partition or ""),
            efas=instance.efas,
        )


def instance_of(
    made: Made, claim: NodeClaim, node_class: EC2NodeClass, instance_type: InstanceType | None, ca_bundle: str
) -> LaunchedInstance:
    """What the claim is told of its instance.

    Args:
        made: the instance.
        claim: that it is for.
        node_class: of the claim.
        instance_type: of the instance, None where the catalogue does not know it (any more).
        ca_bundle: for the hash of a class that is not stamped yet.
    """
    described = (
        {}
        if instance_type is None
        else {
            key: value
            for key, requirement in instance_type.requirements.items()
            if key not in labels.RESERVATION_LABELS and (value := requirement.single_value)
        }
    )
    zone_id = next((one.zone_id for one in node_class.status.subnets if one.zone == made.zone and one.zone_id), "")
    wanted = {
        **described,
        names.INSTANCE_TYPE_LABEL: made.instance_type,
        names.ZONE_LABEL: made.zone,
        labels.ZONE_ID: zone_id,
        names.CAPACITY_TYPE_LABEL: made.capacity_type,
        labels.TENANCY: made.tenancy,
        labels.PLACEMENT_GROUP_ID: made.group,
        labels.PLACEMENT_GROUP_PARTITION: made.partition,
        names.NODEPOOL_LABEL: claim.pool,
    }
    if made.reservation:
        wanted |= {
            labels.RESERVATION_ID: made.reservation,
            labels.RESERVATION_TYPE: made.reservation_type,
            labels.RESERVATION_INTERRUPTIBLE: _TRUE if made.interruptible else "false",
        }
    stamped = {
        key: value
        for key in (ec2.HASH_ANNOTATION, ec2.HASH_VERSION_ANNOTATION)
        if (value := node_class.metadata.annotations.get(key))
    }
    return LaunchedInstance(
        provider_id=provider_id(made.zone, made.instance_id),
        instance_type=made.instance_type,
        zone=made.zone,
        capacity_type=made.capacity_type,
        image_id=made.image,
        labels={key: value for key, value in sorted(wanted.items()) if value},
        annotations={
            **(stamped if len(stamped) == 2 else class_stamp(node_class.spec, ca_bundle)),
            ec2.INSTANCE_PROFILE_ANNOTATION: node_class.status.instance_profile,
        },
        capacity=Resources.of({}) if instance_type is None else _amounts(instance_type.capacity, made.efas),
        allocatable=Resources.of({}) if instance_type is None else _amounts(instance_type.allocatable, made.efas),
        claim_name=claim.metadata.name,
    )


# ------------------------------------------------------------------ parts of an order


def launch_spec(
    node_class: EC2NodeClass,
    requirements: Requirements,
    capacity_type: str,
    group: PlacementGroup | None,
    *,
    ipv6: bool,
) -> templates.InstanceSpec:
    """What launch templates of a class say, but for image, user data and what differs by instance type; dry runs ask for the same."""
    tenancy = requirements.requirement(labels.TENANCY)
    dedicated = not tenancy.has(labels.DEFAULT_TENANCY) and tenancy.has(labels.DEDICATED_TENANCY)
    return templates.InstanceSpec(
        image="",
        user_data="",
        profile=node_class.status.instance_profile,
        security_groups=tuple(sorted(one.id for one in node_class.status.security_groups)),
        capacity_type=capacity_type,
        tenancy=labels.DEDICATED_TENANCY if dedicated else labels.DEFAULT_TENANCY,
        group="" if group is None else group.id,
        interfaces=node_class.network_interfaces,
        ipv6=ipv6,
    )


def node_input(
    node_class: EC2NodeClass, cluster: JoinedCluster, labels_: Mapping[str, str], capacity_type: str
) -> NodeInput:
    """What user data of a class's nodes is rendered from, but for taints and pods."""
    return NodeInput(
        family=node_class.family,
        cluster=cluster,
        max_pods=0,
        kubelet=node_class.kubelet,
        labels=node_labels(labels_, capacity_type, node_class.family),
        user_data=node_class.spec.user_data if isinstance(node_class.spec.user_data, str) else "",
        raid0=node_class.spec.instance_store_policy == "RAID0",
        bottlerocket_version=bottlerocket.version_of(node_class) if node_class.family == ec2.BOTTLEROCKET else "",
    )


def launch_tags(node_class: EC2NodeClass, pool: str, cluster: str) -> dict[str, str]:
    """Tags of everything that a launch makes: the user's, then ours, which IAM policies ask for."""
    return {
        **node_class.tags,
        f"{ec2.CLUSTER_TAG_PREFIX}{cluster}": "owned",
        ec2.NODEPOOL_TAG: pool,
        ec2.CLUSTER_NAME_TAG: cluster,
        ec2.NODECLASS_TAG: node_class.name,
    }


class _TemplateMaker:
    """Makes the templates of one order, each once."""

    def __init__(
        self,
        claim: NodeClaim,
        around: OrderContext,
        requirements: Requirements,
        requests: Resources,
        capacity_type: str,
        partition: str,
    ) -> None:
        node_class, cluster = around.node_class, around.cluster
        self.made: dict[str, LaunchTemplate] = {}
        self.tags = launch_tags(node_class, claim.pool, cluster.name)
        self._around, self._efa = around, bool(requests.amount(labels.EFA)) and not node_class.network_interfaces
        self._node = replace(
            node_input(node_class, cluster, claim.metadata.labels, capacity_type),
            taints=node_taints(claim.spec.taints, claim.spec.startup_taints),
        )
        self._instance = replace(
            launch_spec(node_class, requirements, capacity_type, around.group, ipv6=self._node.ipv6),
            partition=int(partition or 0),
        )
        self._texts: dict[tuple[int, Reserved], str] = {}
        self._names: dict[templates.InstanceSpec, str] = {}

    def template(self, one: InstanceType, offering: Offering) -> tuple[str, str]:
        """Name of the template for a type, and the image in it."""
        image = image_for(one.requirements, self._around.node_class.status.amis)
        if image is None:
            raise ValueError(_no_image_runs_on(one.name))
        kind = selection.reservation_type(offering)
        interfaces, pods = self._launch(one.name)
        spec = replace(
            self._instance,
            image=image.id,
            user_data=self._user_data(pods, self._around.kept(one.name)),
            interfaces=interfaces,
            reservation=offering.requirements.requirement(labels.RESERVATION_ID).single_value or "",
            block=kind == labels.CAPACITY_BLOCK,
            interruptible=kind == fleet.INTERRUPTIBLE,
        )
        name = self._names.get(spec)
        if name is None:
            around = self._around
            made = templates.template(around.node_class, spec, self.tags, around.region, reservations=around.reserved)
            name = self._names[spec] = made.name
            self.made[name] = made
        return name, image.id

    def fitted(self, one: InstanceType) -> InstanceType:
        """The type with the pods that its kubelet is told of: one interface for EFA on the first card is none for pods."""
        pods = self._launch(one.name)[1]
        if not self._efa or one.capacity.amount(PODS) == pods:
            return one
        return replace(one, capacity=Resources.of({**one.capacity, PODS: pods}))

    def _launch(self, instance_type: str) -> tuple[tuple[NetworkInterface, ...], int]:
        """The interfaces of the type in place of a usual one, and its pods."""
        efa = self._around.efa(instance_type) if self._efa else EfaLaunch()
        if efa.interfaces:
            return efa.interfaces, efa.max_pods
        return self._around.node_class.network_interfaces, self._around.max_pods(instance_type)

    def _user_data(self, max_pods: int, kept: Reserved) -> str:
        text = self._texts.get((max_pods, kept))
        if text is None:
            try:
                kubelet = {**self._node.kubelet, **{field: dict(amounts) for field, amounts in kept if amounts}}
                text = rendering.encoded(rendering.render(replace(self._node, max_pods=max_pods, kubelet=kubelet)))
            except UserDataError as error:
                raise CreateError(names.LAUNCH_FAILED, f"user data: {error}") from error
            self._texts[max_pods, kept] = text
        return text


def _offer(one: InstanceType, offering: Offering, group: PlacementGroup | None, partition: str) -> OfferingKey:
    return OfferingKey(offering.capacity_type, one.name, offering.zone, "" if group is None else group.id, partition)


def _partition_of(offering: Offering) -> str:
    return offering.requirements.requirement(labels.PLACEMENT_GROUP_PARTITION).single_value or ""


def _partition(found: Selection, requirements: Requirements) -> str:
    """The partition that a claim wants which wants one; "" leaves it to EC2."""
    wanted = requirements.requirement(labels.PLACEMENT_GROUP_PARTITION)
    if wanted.complement and not wanted.values and wanted.gte is None and wanted.lte is None:
        return ""
    there = {_partition_of(offering) for one in found.types for offering in found.offerings(one)} - {""}
    return min(there, key=int, default="")


def _data_of(order: Order, template: str) -> Mapping[str, Any]:
    return next((one.data for one in order.needed if one.name == template), {})


def _amounts(given: Resources, efas: int) -> Resources:
    """Without what there is nothing of, and EFA only where interfaces are attached."""
    return Resources.of({key: amount for key, amount in given.items() if amount and (key != labels.EFA or efas)})


def shortlist(order: Order) -> tuple[OfferingKey, ...]:
    """The offers of an order, each once, cheapest first."""
    return tuple(dict.fromkeys(one.offer for one in sorted(order.overrides, key=lambda one: (one.price, one.offer))))


def narrowed(order: Order, offers: Collection[OfferingKey]) -> Order:
    """The same order for fewer offers; at least one must be in it."""
    overrides = tuple(one for one in order.overrides if one.offer in offers)
    used = {one.template for one in overrides}
    return replace(order, overrides=overrides, needed=tuple(one for one in order.needed if one.name in used))


def later(error: CloudError, seconds: float | None) -> CloudError:
    """The same error; the same is worth another try in so many seconds."""
    error.retry_after = seconds
    return error
