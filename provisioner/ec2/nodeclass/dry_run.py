"""Whether instances of a class may be launched at all: the calls of a launch, as dry runs, before anybody needs one.

Source: spec/karpenter-aws.md 5.8.
Differs: a refusal is asked again after a minute, not after half an hour, so a policy that was mended is seen; what a dry run says about capacity or the
    request itself is reported as a warning and does not fail the class; no type that fits is a warning, not a crash.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from provisioner.apis import ec2, names
from provisioner.apis.ec2 import AMI, EC2NodeClass
from provisioner.apis.karpenter import NodePool, requirements_of
from provisioner.cloudprovider.types import InstanceType, cheapest_first
from provisioner.ec2 import labels
from provisioner.ec2.access.client import Clients
from provisioner.ec2.access.errors import LAUNCH_TEMPLATE_NOT_FOUND, Failure, FailureKind, classify_exception
from provisioner.ec2.launch import fleet, orders
from provisioner.ec2.launch.launch_marks import Mark
from provisioner.ec2.launch.launch_templates import LaunchTemplates
from provisioner.ec2.launch.templates import LaunchTemplate, template
from provisioner.ec2.launch.userdata.inputs import JoinedCluster, has_ipv6, node_taints
from provisioner.ec2.launch.userdata.rendering import encoded, render, size_of
from provisioner.ec2.market.instance_types import PlacementGroup, image_for
from provisioner.ec2.market.unavailable_offerings import OfferingKey
from provisioner.ec2.nodeclass.answer_cache import Remembered
from provisioner.ec2.nodeclass.discovery import DiscoveryError
from provisioner.ec2.nodeclass.validation import size_problem, size_warning, user_data_too_long
from provisioner.values.message import Said
from provisioner.values.requirement import RequirementError, Requirements

KEEP: Final = timedelta(minutes=30)
KEEP_REFUSED: Final = timedelta(minutes=1)
STAND_IN_POOL: Final = "dovetail-validation"
"""The pool that tags name while no NodePool uses the class."""

_USUAL: Final = {"amd64": "m5.large", "arm64": "m6g.large"}
_MOST_PODS: Final = 110
_PASSING: Final = frozenset(
    {FailureKind.THROTTLED, FailureKind.SERVER, FailureKind.CONNECTION, FailureKind.CREDENTIALS}
)
_PROFILE_REASON: Final = "InstanceProfileNameInvalid"


@dataclass(frozen=True, slots=True)
class Choice:
    """What is rehearsed."""

    instance_type: str
    image: AMI


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """How it went.

    Attributes:
        reason: of ValidationSucceeded being False; "" when instances may be launched.
        message: what to change.
        warnings: what looks wrong, but is no refusal.
    """

    reason: str = ""
    message: str = ""
    warnings: tuple[str, ...] = ()


def choose(node_class: EC2NodeClass, types: Iterable[InstanceType], pools: Sequence[NodePool]) -> Choice | None:
    """The type and image to rehearse with: a plain image before those for accelerators, the cheapest type that a pool allows.

    Args:
        node_class: with the images in its status.
        types: what the class may launch; may be empty while nothing is known.
        pools: that use the class.

    Returns:
        None when no image goes with any type.
    """
    images = sorted(node_class.status.amis, key=lambda ami: not _plain(ami))
    if node_class.family not in ec2.WINDOWS_FAMILIES:
        wanted = [found for pool in pools if (found := _requirements(pool)) is not None] or [Requirements.of(())]
        known = labels.WELL_KNOWN | names.WELL_KNOWN_LABELS
        allowed = [
            one
            for one in cheapest_first(types)
            if any(requirements.incompatibility(one.requirements, known) is None for requirements in wanted)
        ]
        for image in images:
            for one in allowed:
                if image_for(one.requirements, (image,)) is not None:
                    return Choice(one.name, image)
    return next((Choice(usual, image) for image in images if (usual := usual_type(image))), None)


def usual_type(image: AMI) -> str:
    """An instance type that goes with an image, by its architecture; "" where that is not known."""
    wanted = (one.values[0] for one in image.requirements if one.key == names.ARCH_LABEL and one.values)
    return _USUAL.get(next(wanted, ""), "")


def user_data(node_class: EC2NodeClass, cluster: JoinedCluster, pool: NodePool | None) -> str:
    """What instances of a pool would read, near enough for its size.

    Raises:
        UserDataError: it cannot be rendered.
    """
    own = {} if pool is None else pool.labels
    wanted = {**own, names.NODEPOOL_LABEL: _name(pool), ec2.NODECLASS_LABEL: node_class.name}
    node = orders.node_input(node_class, cluster, wanted, names.CAPACITY_ON_DEMAND)
    taints = () if pool is None else node_taints(pool.taints, pool.startup_taints)
    return render(replace(node, max_pods=_MOST_PODS, taints=taints))


def rehearsed(
    node_class: EC2NodeClass,
    choice: Choice,
    pool: NodePool | None,
    cluster: JoinedCluster,
    group: PlacementGroup | None,
    region: str,
    *,
    reserved: bool = True,
) -> LaunchTemplate:
    """The launch template of the dry run: that of an instance which a pod of the pool would get.

    Raises:
        UserDataError: user data cannot be rendered.
    """
    wanted = (None if pool is None else _requirements(pool)) or Requirements.of(())
    ipv6 = has_ipv6(node_class.kubelet, cluster)
    spec = orders.launch_spec(node_class, wanted, names.CAPACITY_ON_DEMAND, group, ipv6=ipv6)
    instance = replace(spec, image=choice.image.id, user_data=encoded(user_data(node_class, cluster, pool)))
    tags = orders.launch_tags(node_class, _name(pool), cluster.name)
    return template(node_class, instance, tags, region, reservations=reserved)


def sized(node_class: EC2NodeClass, cluster: JoinedCluster, pools: Sequence[NodePool]) -> tuple[int, Rehearsed]:
    """Bytes of the longest user data of the class's pools, and what EC2 will say to them.

    Raises:
        UserDataError: it cannot be rendered.
    """
    texts = [user_data(node_class, cluster, pool) for pool in pools] or [user_data(node_class, cluster, None)]
    longest = max(texts, key=size_of)
    problem, warning = size_problem(longest), size_warning(longest)
    if problem:
        return size_of(longest), Rehearsed(ec2.USER_DATA_SIZE_LIMIT_EXCEEDED, user_data_too_long(problem))
    return size_of(longest), Rehearsed(warnings=(Said(f"spec.userData: {warning}"),) if warning else ())


def _action_failed(action: str, failure: str) -> str:
    """A dry run was refused."""
    return Said(f"{action}: {failure}")


class Rehearsal:
    """Makes the dry runs, and keeps their results. Thread-safe.

    Args:
        types: what a class may launch, as it is known now.
        group_of: the placement group of a class, as it is known now.
        reserved: whether the feature gate ReservedCapacity is on.
    """

    def __init__(
        self,
        aws: Clients,
        region: str,
        types: Callable[[EC2NodeClass], Iterable[InstanceType]],
        group_of: Callable[[EC2NodeClass], PlacementGroup | None],
        templates: LaunchTemplates,
        now: Callable[[], datetime],
        *,
        reserved: bool = True,
    ) -> None:
        self._aws, self._region, self._types, self._group_of = aws, region, types, group_of
        self._templates, self._reserved = templates, reserved
        self._results: Remembered[Rehearsed] = Remembered(now)

    def run(self, node_class: EC2NodeClass, pools: Sequence[NodePool], cluster: JoinedCluster) -> Rehearsed:
        """The result for the class as it is; an earlier one where nothing changed.

        Raises:
            DiscoveryError: AWS could not say: too many calls, or a failure of its own.
            NotKnownYet: the placement group was not looked up yet.
            UserDataError: user data cannot be rendered.
        """
        question = _question(node_class, pools, cluster)
        known = self._results.peek(question, KEEP)
        if known is not None and (not known.reason or self._results.peek(question, KEEP_REFUSED) is not None):
            return known
        result = self._run(node_class, pools, cluster)
        if result.reason != ec2.INSTANCE_PROFILE_NOT_FOUND:  # a new profile takes some seconds to be known
            self._results.put(question, result)
        return result

    def _run(self, node_class: EC2NodeClass, pools: Sequence[NodePool], cluster: JoinedCluster) -> Rehearsed:
        choice = choose(node_class, self._types(node_class), pools)
        if choice is None:
            return Rehearsed(
                warnings=(Said("no instance type is compatible with the images that spec.amiSelectorTerms selects"),)
            )
        pool = pools[0] if pools else None
        group = self._group_of(node_class)
        made = rehearsed(node_class, choice, pool, cluster, group, self._region, reserved=self._reserved)
        tags = made.tags
        try:
            self._templates.ensure([made])
        except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
            failure = classify_exception(error)
            return self._verdict(ec2.CREATE_LAUNCH_TEMPLATE_AUTH_CHECK_FAILED, "ec2:CreateLaunchTemplate", failure)
        told: list[str] = []
        for reason, action, request in (
            (ec2.CREATE_FLEET_AUTH_CHECK_FAILED, "CreateFleet", _fleet_request),
            (ec2.RUN_INSTANCES_AUTH_CHECK_FAILED, "RunInstances", run_request),
        ):
            answer = self._dry_run(action, [request(choice, made, one, tags) for one in places(node_class)])
            if answer is not None:
                if answer.reason == LAUNCH_TEMPLATE_NOT_FOUND:
                    self._templates.forget([made.name])
                    raise DiscoveryError(f"ec2:{action}", answer)
                result = self._verdict(reason, f"ec2:{action}", answer)
                if result.reason:
                    return result
                told.extend(result.warnings)
        return Rehearsed(warnings=tuple(told))

    def _dry_run(self, action: str, requests: Sequence[Mapping[str, Any]]) -> Failure | None:
        """None as soon as one of the requests would have been carried out, else what the first was answered."""
        first: Failure | None = None
        call = getattr(
            self._aws.client("ec2"), {"CreateFleet": "create_fleet", "RunInstances": "run_instances"}[action]
        )
        for request in requests:
            try:
                call(**request)
            except Exception as error:  # noqa: BLE001 - botocore raises many kinds; classify_exception sorts them
                failure = classify_exception(error)
                if failure.kind is FailureKind.DRY_RUN:
                    return None
                first = first or failure
                if failure.kind in _PASSING:
                    break
            else:
                return None
        return first

    def _verdict(self, reason: str, action: str, failure: Failure) -> Rehearsed:
        if failure.kind in _PASSING:
            raise DiscoveryError(action, failure)
        if failure.kind is FailureKind.DENIED:
            return Rehearsed(reason, _action_failed(action, str(failure)))
        if failure.reason == _PROFILE_REASON:
            return Rehearsed(ec2.INSTANCE_PROFILE_NOT_FOUND, _action_failed(action, str(failure)))
        if failure.reason == ec2.USER_DATA_SIZE_LIMIT_EXCEEDED:
            return Rehearsed(failure.reason, Said(f"spec.userData: {failure}"))
        return Rehearsed(warnings=(Said(f"a dry run of {action} failed: {failure}"),))


def places(node_class: EC2NodeClass) -> tuple[ec2.SubnetStatus, ...]:
    """One subnet of each zone."""
    by_zone: dict[str, ec2.SubnetStatus] = {}
    for one in node_class.status.subnets:
        by_zone.setdefault(one.zone, one)
    return tuple(by_zone.values())


def fleet_request(
    template_name: str, instance_type: str, place: ec2.SubnetStatus, image: str, tags: Mapping[str, str]
) -> dict[str, Any]:
    """CreateFleet as a dry run, in one subnet."""
    offer = OfferingKey(names.CAPACITY_ON_DEMAND, instance_type, place.zone)
    request = fleet.request(
        [fleet.Override(template_name, offer, place.id, image, 1.0)],
        capacity_type=names.CAPACITY_ON_DEMAND,
        count=1,
        tags=tags,
        mark=Mark("validation", 1, 0),
        dry_run=True,
    )
    del request["ClientToken"]  # nothing is made, and a token belongs to one request
    return request


def _fleet_request(
    choice: Choice, made: LaunchTemplate, place: ec2.SubnetStatus, tags: Mapping[str, str]
) -> dict[str, Any]:
    return fleet_request(made.name, choice.instance_type, place, choice.image.id, tags)


def run_request(
    choice: Choice, made: LaunchTemplate, place: ec2.SubnetStatus, tags: Mapping[str, str]
) -> dict[str, Any]:
    """RunInstances as a dry run, in one subnet: every interface of the template is named, because each needs it."""
    listed = [{"Key": key, "Value": tags[key]} for key in sorted(tags)]
    kinds = ("instance", "volume", "network-interface")
    return {
        "DryRun": True,
        "MinCount": 1,
        "MaxCount": 1,
        "LaunchTemplate": {"LaunchTemplateName": made.name, "Version": "$Latest"},
        "InstanceType": choice.instance_type,
        "ImageId": choice.image.id,
        "NetworkInterfaces": [{**one, "SubnetId": place.id} for one in made.data["NetworkInterfaces"]],
        "MetadataOptions": made.data["MetadataOptions"],  # policies look for them in the request
        "TagSpecifications": [{"ResourceType": kind, "Tags": listed} for kind in kinds],
    }


def _question(node_class: EC2NodeClass, pools: Sequence[NodePool], cluster: JoinedCluster) -> str:
    """Everything that the result depends on. Any other annotation counts as well: setting one makes the calls anew."""
    status = _without_conditions(node_class)
    stamps = {ec2.HASH_ANNOTATION, ec2.HASH_VERSION_ANNOTATION}
    annotations = {key: value for key, value in node_class.metadata.annotations.items() if key not in stamps}
    content = [
        node_class.metadata.uid,
        msgspec.to_builtins(node_class.spec),
        msgspec.to_builtins(status),
        annotations,
        [[pool.name, pool.metadata.generation] for pool in pools],
        msgspec.to_builtins(cluster),
    ]
    return hashlib.blake2b(msgspec.json.encode(content, order="deterministic"), digest_size=16).hexdigest()


def _without_conditions(node_class: EC2NodeClass) -> ec2.EC2NodeClassStatus:
    """The status as far as launches depend on it: without conditions, and without the order of subnets."""
    status = node_class.status
    return msgspec.structs.replace(status, conditions=(), subnets=tuple(sorted(status.subnets, key=lambda one: one.id)))


def _requirements(pool: NodePool) -> Requirements | None:
    try:
        return requirements_of(pool.spec.template.spec.requirements)
    except RequirementError:
        return None  # the pool's own condition says so


def _plain(ami: AMI) -> bool:
    """Whether an image is for instances without accelerators."""
    special = {labels.GPU_COUNT, labels.ACCELERATOR_COUNT}
    return not any(one.key in special and one.operator == "Exists" for one in ami.requirements)


def _name(pool: NodePool | None) -> str:
    return STAND_IN_POOL if pool is None else pool.name
